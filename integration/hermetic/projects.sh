#!/bin/bash
# Runs the tests of other people's projects outside and inside husk's sandbox, and prints a table in Markdown. Fails if
# fewer tests pass inside than outside. The projects are listed in projects.txt.
#
#     integration/hermetic/projects.sh            every project
#     integration/hermetic/projects.sh NAME...    only those whose names contain one of these words
#     ROUNDS=5 ...                                this many runs, outside and inside in turn; the time is the median
#     ROUNDS=0 ...                                one run, whose time includes building
#     HUSK=/path/to/husk ...                      with this binary; nothing is built
#
# A user would fetch dependencies and build before the first sandbox, and so does this script, once. A project that
# cannot be had, or that fails outside, is skipped. As root, some projects run again as an ordinary user, whose
# sources and tools are in a home directory.
. "$(dirname "$0")/setup.sh"
list=$(readlink -f "$(dirname "$0")/projects.txt")
rounds=${ROUNDS:-3}
# Each project builds in its own directory.
unset CARGO_TARGET_DIR
mkdir -p "$work/projects" "$work/logs"

skip() { # REASON
    echo "skipped: $name${who:+ $who}: $1" >&2
}

fetch_crates.io() {
    mkdir -p "$directory.fetch/src"
    touch "$directory.fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n%s = "=%s"\n' \
        "$name" "$version" >"$directory.fetch/Cargo.toml"
    cargo fetch --manifest-path "$directory.fetch/Cargo.toml"
    cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$name-$version" "$directory"
    cd "$directory"
    # Without this, cargo looks for a workspace in the directories above.
    grep -q '^\[workspace' Cargo.toml || printf '\n[workspace]\n' >>Cargo.toml
    cargo fetch
}

fetch_go() {
    local source
    cd "$work"
    source=$(go mod download -json "$name@$version" | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')
    cp -r --no-preserve=mode "$source" "$directory"
    cd "$directory"
    go mod download
}

fetch_PyPI() {
    python3 -m pip download --no-deps --no-binary :all: --dest "$directory.fetch" "$name==$version"
    mkdir "$directory"
    tar -xzf "$directory.fetch/"*.tar.gz --strip-components=1 -C "$directory"
    cd "$directory"
    python3 -m venv .venv
    # shellcheck disable=SC2086 # Split into words on purpose.
    .venv/bin/pip install --editable . $needs
}

fetch_npm() {
    mkdir "$directory.fetch" "$directory"
    (cd "$directory.fetch" && npm pack "$name@$version")
    tar -xzf "$directory.fetch/"*.tgz --strip-components=1 -C "$directory"
    cd "$directory"
    # Most of these are linters, whose versions are not pinned.
    npm pkg delete devDependencies
    # shellcheck disable=SC2086 # Split into words on purpose.
    npm install $needs
}

# Prepares the project's directory, once. Its name stays the same, because builds depend on it.
fetch() {
    rm -rf "$directory" "$directory.ready" "$directory.fetch"
    "fetch_$registry"
    # Makes the directory a project of its own, like a clone.
    git init --quiet "$directory"
    rm -rf "$directory.fetch"
    touch "$directory.ready"
}

tool_of() { # REGISTRY
    case $1 in crates.io) echo cargo ;; PyPI) echo python3 ;; *) echo "$1" ;; esac
}

# Prints how many tests passed according to the output of their runner.
passed() { # KIND
    case $1 in
    cargo) awk '/^test result:/ { n += $4 } END { print n + 0 }' ;;
    nextest) awk '/^ *Summary / { for (i = 2; i <= NF; i++) if ($i ~ /^passed/) n = $(i - 1) } END { print n + 0 }' ;;
    go) grep -c '^ *--- PASS: ' || true ;;
    pytest) awk '/ in [0-9.]+s/ { for (i = 2; i <= NF; i++) if ($i ~ /^passed/) n = $(i - 1) } END { print n + 0 }' ;;
    unittest) awk '/^Ran / { n = $2 } /^(OK|FAILED) \(/ { while (match($0, /=[0-9]+/)) {
        n -= substr($0, RSTART + 1, RLENGTH - 1); $0 = substr($0, RSTART + RLENGTH) } } END { print n + 0 }' ;;
    mocha) awk '$2 == "passing" { n = $1 } END { print n + 0 }' ;;
    tap) awk '$1 ~ /^(#|ℹ)$/ && $2 == "pass" { n = $3 } END { print n + 0 }' ;;
    esac
}

# Runs the tests once. Appends the number that passed and the seconds to files named after the place, and returns the
# exit code.
run() { # outside|inside
    local place=$1 prefix='' began status=0
    cd "$directory"
    [ "$place" = outside ] || prefix="husk test ${options#-} -- "
    if [ "$kind" = nextest ]; then
        # nextest starts each test in a sandbox if the project's configuration says so.
        prefix=''
        [ "$place" = outside ] || cd "$directory-sandboxed"
    fi
    began=$EPOCHREALTIME
    timeout 600 bash -c "$prefix$command" >"$log.$place" 2>&1 </dev/null || status=$?
    awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", b - a }' >>"$log.$place.seconds"
    passed "$kind" <"$log.$place" >>"$log.$place.passed"
    return $status
}

# Prints the number of tests that passed; two numbers if it differed between rounds.
range() { sort -gu "$1" | sed -n '1p;$p' | uniq | paste -sd - | sed 's/-/ to /'; }

median() { sort -g "$1" | sed -n "$((($(wc -l <"$1") + 1) / 2))p"; }

# Measures one project. Prints its row of the table.
measure() {
    local place round outside inside fine=yes short=${name##*/} mode=''
    directory=$work/projects/$short-$version
    log=$work/logs/$short-$version-$kind
    command -v "$(tool_of "$registry")" >/dev/null || { skip "$(tool_of "$registry") is missing"; return; }
    if [ "$kind" = nextest ]; then
        install_nextest >&2 || { skip 'cargo-nextest cannot be had'; return; }
        mode=', a sandbox for each test (nextest)'
    fi
    if [ ! -e "$directory.ready" ]; then
        # Calling it in a condition would disable `set -e` inside it.
        set +e
        (set -e; fetch) >"$log.fetch" 2>&1
        set -e
        [ -e "$directory.ready" ] || { skip "it cannot be had: $log.fetch"; return; }
    fi
    if [ "$kind" = nextest ]; then
        rm -rf "$directory-sandboxed"
        cp -a "$directory" "$directory-sandboxed"
        (cd "$directory-sandboxed" && husk test init --yes) >&2
    fi
    [ "$registry" != PyPI ] || { VIRTUAL_ENV=$directory/.venv PATH=$directory/.venv/bin:$PATH; export VIRTUAL_ENV; }
    # The first run builds and fills caches, so its time does not count if others follow.
    for ((round = 0; round <= rounds; round++)); do
        [ "$round" -gt 1 ] || rm -f "$log".*.seconds "$log".*.passed
        for place in outside inside; do
            if (run $place); then continue; fi
            [ $place = outside ] || fine=
            if [ $place = outside ] && [ "$kind" != nextest ]; then
                skip "its tests fail outside: $log.outside"
                return
            fi
        done
    done
    outside=$(sort -rg "$log.outside.passed" | head -n 1)
    inside=$(sort -g "$log.inside.passed" | head -n 1)
    [ "$outside" -gt 0 ] && [ "$inside" -ge "$outside" ] || fine=
    printf '| %s | %s | %s | %s | ' "$short $version$mode${who:+, $who}" "$registry" "$(range "$log.outside.passed")" \
        "$(range "$log.inside.passed")"
    # The machine may become faster or slower between two rounds, but hardly within one.
    paste "$log.outside.seconds" "$log.inside.seconds" | awk '{ print $2 / $1 }' >"$log.ratios"
    awk -v a="$(median "$log.outside.seconds")" -v b="$(median "$log.inside.seconds")" -v ratio="$(median "$log.ratios")" \
        -v options="${options/#-/none}" 'BEGIN { printf "%.2f | %.2f | %.2f | %s |\n", a, b, ratio, options }'
    if [ -z "$fine" ]; then
        { echo "FAILED: $name: $log.inside"; tail -n 20 "$log.inside"; } >&2
        echo failed >>"$work/failed"
    fi
}

# Prints a row for each project. The caller chooses those of the list that an ordinary user runs, or all.
rows() { # WORD...
    local name version registry kind needs options command as
    while read -r name version registry kind needs options command; do
        case $name in '' | '#'*) continue ;; esac
        if [ $# -gt 0 ] && ! grep -qF "$(printf '%s\n' "$@")" <<<"$name"; then continue; fi
        as=${kind#*,} kind=${kind%,*}
        if [ -n "$who" ] && [ "$as" != user ]; then continue; fi
        needs=${needs#-} needs=${needs//,/ }
        (measure)
    done <"$list"
}

# Runs this script as an ordinary user with a home directory, in a mount namespace of its own.
rows_of_user() { # WORD...
    local home=$work/user/ann
    mkdir -p "$home/husk/integration/hermetic" "$home/.cargo" "$home/.rustup"
    cp "$root"/integration/hermetic/* "$home/husk/integration/hermetic/"
    cp "$HUSK" "$home/husk/husk"
    [ ! -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] || cp -a "${CARGO_HOME:-$HOME/.cargo}/bin" "$home/.cargo/"
    (grep -v '^ann:' /etc/passwd; echo "ann:x:4242:4242::/home/ann:/bin/bash") >"$work/user/passwd"
    chown -R 4242:4242 "$home"
    export work rounds
    # shellcheck disable=SC2016 # The inner shell expands these.
    unshare --mount bash -euc '
        [ ! -d "${RUSTUP_HOME:-$HOME/.rustup}" ] || mount --bind "${RUSTUP_HOME:-$HOME/.rustup}" "$work/user/ann/.rustup"
        mount --bind "$work/user/passwd" /etc/passwd
        mount --rbind "$work/user" /home
        cd /home/ann
        exec setpriv --reuid 4242 --regid 4242 --clear-groups env -u RUSTUP_HOME -u CARGO_HOME -u GOPATH -u GOCACHE \
            -u GOMODCACHE HOME=/home/ann USER=ann HERMETIC_WHO="as a user" HUSK=/home/ann/husk/husk HERMETIC_WORK=/home/ann/work ROUNDS="$rounds" \
            PATH="/home/ann/.cargo/bin:$(dirname "$(command -v go || echo /usr/bin/go)"):/usr/local/bin:/usr/bin:/bin" \
            bash husk/integration/hermetic/projects.sh "$@"' - "$@"
    if [ -e "$home/work/failed" ]; then mv "$home/work/failed" "$work/failed"; fi
}

who=${HERMETIC_WHO-}
rm -f "$work/failed"
if [ -n "$who" ]; then
    rows "$@"
    exit 0
fi

table=$(rows "$@"; [ "$(id -u)" != 0 ] || rows_of_user "$@")
# The exit code of a skipped check.
[ -n "$table" ] || exit 77
times='one run'
[ "$rounds" = 0 ] || times="medians of $rounds rounds"
echo "$("$HUSK" --version | head -n 1); seconds, $times; $(uname -sr), $(nproc) processors"
echo
echo '| project | registry | pass outside | pass inside | outside, s | inside, s | ratio | options |'
echo '| - | - | -: | -: | -: | -: | -: | - |'
echo "$table"
[ ! -e "$work/failed" ]
