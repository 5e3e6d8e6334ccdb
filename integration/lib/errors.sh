# shellcheck shell=bash
# Compares failures under husk with those under runc: an engine and its user need the same exit code, and a message that
# names the reason. Rooms that source this file try each case with both runtimes. The messages are kept as a table in
# target/integration/ROOM/errors.md; HUSK_GOLDEN=write also copies it beside the room's script.

packages="$packages runc"

# Prints the last line of the output, without the parts that change from run to run.
last_words() {
    sed -E 's/time="[^"]*" ?//; s/[0-9a-f]{64}/ID/g; s/[0-9a-f]{12}\b/ID/g; s/\x1b\[[0-9;]*m//g; s/\|/\\|/g' |
        grep -vE "^(See |Usage|.*context canceled|\+|\$|DEBU|.*level=warning|ID$)|--help" | tail -n 1
}

# Runs the command with `runtime` set to runc and to husk. Both must return the same exit code.
as_with_runc() { # CASE COMMAND...
    try_both "$@"
    same "${codes[0]}" "${codes[1]}"
}

# Like `as_with_runc`, but husk must return CODE, for a reason that is given beside the call.
other_than_runc() { # CODE CASE COMMAND...
    local code=$1
    shift
    try_both "$@"
    same "$code" "${codes[1]}"
}

try_both() { # CASE COMMAND...
    local case=$1 code said=()
    shift
    codes=()
    for runtime in runc husk; do
        code=0
        "$@" >"$work/said" 2>&1 || code=$?
        cat "$work/said"
        codes+=("$code")
        said+=("$(last_words <"$work/said")")
        after_check >/dev/null 2>&1 || true
    done
    [ -e "$logs/errors.md" ] || printf '%s\n' "What $room says of containers that fail: the exit code and the last line, with runc and with husk." \
        'Made by run.sh beside this file.' '' '| what | runc | husk |' '| - | - | - |' >"$logs/errors.md"
    echo "| $case | ${codes[0]}: ${said[0]} | ${codes[1]}: ${said[1]} |" >>"$logs/errors.md"
}

# --- Checks of both docker and podman. Their rooms define `failing` and `in_running`, whose container is `box`. -------

programs_that_cannot_be_run() { # CODE-WITHOUT-INTERPRETER
    as_with_runc 'a program that is nowhere in PATH' failing "$image" nowhere
    as_with_runc 'a program that is not there' failing "$image" /not/there
    as_with_runc 'a file that is no program' failing "$image" /usr/bin/not-executable
    as_with_runc 'a directory' failing "$image" /tmp
    # husk's `start` fails and gives the reason. runc's succeeds, and the container then prints the error and ends.
    other_than_runc "$1" 'a script whose interpreter is missing' failing "$image" /usr/bin/no-interpreter
}

execs_of_what_cannot_be_run() {
    as_with_runc 'exec of a program that is nowhere in PATH' in_running box nowhere
    as_with_runc 'exec of a program that is not there' in_running box /not/there
    as_with_runc 'exec of a file that is no program' in_running box /usr/bin/not-executable
    as_with_runc 'exec in a directory that is not there' in_running --workdir /not/there box true
    as_with_runc 'exec as a user that is not there' in_running --user nobody-here box true
}

mounts_that_cannot_be_made() {
    as_with_runc 'a file mounted on a directory' failing --volume /etc/passwd:/tmp "$image" true
    as_with_runc 'a directory mounted on a file' failing --volume /etc:/etc/passwd "$image" true
    as_with_runc 'a mount over /proc' failing --volume /etc:/proc/sys "$image" true
    as_with_runc 'a tmpfs of a size that is none' failing --tmpfs /t:size=nonsense "$image" true
}

settings_that_are_none() {
    as_with_runc 'a sysctl that is not there' failing --sysctl net.not.there=1 "$image" true
    as_with_runc 'a sysctl with a value that is none' failing --sysctl kernel.msgmni=many "$image" true
}

keep_errors() {
    [ "${HUSK_GOLDEN-}" != write ] || cp "$logs/errors.md" "$root/integration/$room/errors.md"
}
