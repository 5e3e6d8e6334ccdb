# shellcheck shell=bash
# What goes wrong has to look to an engine, and to who uses it, as it does with runc: the same exit code, and words
# that name the reason. Rooms that read this file try each case with both; the table of what was said is kept in
# target/integration/ROOM/errors.md, and HUSK_GOLDEN=write puts it beside the room's script.

packages="$packages runc"

# The end of what was said, without what is another each time.
last_words() {
    sed -E 's/time="[^"]*" ?//; s/[0-9a-f]{64}/ID/g; s/[0-9a-f]{12}\b/ID/g; s/\x1b\[[0-9;]*m//g; s/\|/\\|/g' |
        grep -vE "^(See |Usage|.*context canceled|\+|\$|DEBU|.*level=warning|ID$)|--help" | tail -n 1
}

# Runs the words with `runtime` set to each, which have to end in the same way.
as_with_runc() { # CASE COMMAND...
    try_both "$@"
    same "${codes[0]}" "${codes[1]}"
}

# Where husk ends in another way, for a reason that is said beside the call.
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

keep_errors() {
    [ "${HUSK_GOLDEN-}" != write ] || cp "$logs/errors.md" "$root/integration/$room/errors.md"
}
