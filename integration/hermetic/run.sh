#!/bin/bash
# Runs other projects' test runners and tests in husk's sandboxes: nextest, go, pytest and crates of the registry.
#
#   integration/hermetic/run.sh             every check
#   integration/hermetic/run.sh NAME...     only those whose names contain one of these words
#   HUSK=/path/to/husk ...                  with this binary; nothing is built
. "$(dirname "$0")/setup.sh"
cd "$root"

install_package() { # COMMAND PACKAGE
    command -v "$1" >/dev/null || { [ "$(id -u)" = 0 ] && apt-get -qq install --no-install-recommends --yes "$2" >/dev/null; }
}

# Copies an example and enters the copy, so that builds and changed configuration stay out of the tree.
copy_of() {
    rm -rf "${work:?}/$1"
    cp -r "$root/examples/$1" "$work/$1"
    cd "$work/$1"
}

# Expects the command to fail. '!' would not do, because `set -e` ignores its result.
fails() {
    if "$@"; then return 1; fi
}

skip() {
    echo "skipped: $name: $*"
    exit 77
}

check_nextest_has_a_sandbox_for_each_test() {
    install_nextest || skip 'cargo-nextest cannot be had'
    copy_of hermetic-cargo
    cargo nextest list --offline | tee list
    grep -q 'tests::first_server_listens' list
    cargo nextest run --offline 2>&1 | tee seen
    grep -q '4 tests run: 4 passed, 3 skipped' seen
    test ! -e /tmp/hermetic-cargo
    # In a sandbox too, nextest sees a test's timeout, signal and exit code.
    printf '[profile.default]\nslow-timeout = { period = "1s", terminate-after = 1 }\n' >.config-nextest.toml
    fails cargo nextest run --offline --config-file .config-nextest.toml --run-ignored only --no-fail-fast 2>seen
    grep -q 'TIMEOUT.*always_hangs' seen
    grep -q 'SIGABRT.*always_aborts' seen
    grep -q 'FAIL .*always_fails' seen
    grep -q 'on purpose' seen
}

check_nextest_finds_leaks() {
    install_nextest || skip 'cargo-nextest cannot be had'
    copy_of hermetic-cargo
    printf '#[test]\nfn leaks_a_process() { std::process::Command::new("sleep").arg("600").spawn().unwrap(); }\n' >>src/lib.rs
    cargo nextest run --offline leaks_a_process 2>&1 | tee seen
    # The sandbox kills the leaked process and reports it, so no process still holds the test's streams.
    grep -q '1 test run: 1 passed' seen
    cargo nextest run --offline --no-capture leaks_a_process 2>&1 | tee seen
    grep -q 'killed a process that was left running: sleep 600' seen
}

check_go_has_a_sandbox_for_each_package() {
    install_package go golang-go || skip 'go is missing'
    copy_of hermetic-go
    go test -count=1 -exec 'husk test --' ./... 2>&1 | tee seen
    test "$(grep -c '^ok ' seen)" = 2
    test ! -e /tmp/hermetic-go
    # Both packages listen on the same port. Without sandboxes they fail when run at the same time, or twice.
    fails go test -count=2 ./... >seen
    rm -f /tmp/hermetic-go
}

check_pytest_has_a_sandbox_for_each_file_and_each_test() {
    install_package pytest python3-pytest || skip 'pytest is missing'
    copy_of hermetic-pytest
    for each in file test; do
        pytest -p no:cacheprovider "--husk=$each" --junit-xml=junit.xml | tee seen
        grep -q '4 passed, 1 skipped' seen
        grep -q 'tests="5"' junit.xml
    done
    # A test that aborts its process counts as failed.
    export HERMETIC_FAILS=1
    fails pytest -p no:cacheprovider --husk --husk-options='--env HERMETIC_FAILS' >seen
    grep -q '1 failed, 4 passed' seen
    grep -q 'Fatal Python error: Aborted' seen
    test ! -e /tmp/hermetic-pytest
}

check_pytest_is_a_program_like_others() {
    install_package pytest python3-pytest || skip 'pytest is missing'
    copy_of hermetic-pytest
    husk test -- pytest test_one.py | tee seen
    grep -q '2 passed' seen
    test ! -e .pytest_cache
}

# The tools may be in the home directory. Builds write to the project and to caches, and leave both unchanged.
check_cargo_is_a_program_like_others() {
    copy_of hermetic-cargo
    rm -rf .cargo
    husk test -- cargo test --offline --lib home_is_private | tee seen
    grep -q '1 passed; 0 failed' seen
    test ! -e target
}

check_go_is_a_program_like_others() {
    install_package go golang-go || skip 'go is missing'
    copy_of hermetic-go
    husk test -- go test -count=1 ./client | tee seen
    grep -q '^ok ' seen
}

# Runs suites that were not written for husk and use files, directories, links and processes.
check_suites_of_the_registry_pass() {
    mkdir -p "$work/registry/src"
    cd "$work/registry"
    printf '[package]\nname = "registry"\nversion = "0.0.0"\nedition = "2024"\n[lib]\npath = "lib.rs"\n[workspace]\n' >Cargo.toml
    printf '[dependencies]\ntempfile = "=3.20.0"\nwalkdir = "=2.5.0"\n' >>Cargo.toml
    touch lib.rs
    [ -d vendor ] || cargo vendor --quiet vendor >/dev/null || skip 'the registry cannot be reached'
    for crate in tempfile walkdir; do
        rm -rf "suite-$crate"
        cp -r "vendor/$crate" "suite-$crate"
        cd "suite-$crate"
        printf '\n[workspace]\n' >>Cargo.toml
        husk test init --yes
        cargo test --lib --tests 2>&1 | tee seen
        grep -q 'test result: ok. [1-9]' seen
        cd ..
    done
}

# Builds and tests a project with coverage, as cargo-llvm-cov does, and writes the totals. Takes the name of the result.
measure_coverage() {
    rm -rf "profiles-$1"
    LLVM_PROFILE_FILE=$PWD/profiles-$1/%p.profraw RUSTFLAGS='-C instrument-coverage' CARGO_TARGET_DIR=$PWD/covered \
        cargo test --offline --target "$host" 2>&1 | tee seen
    "$llvm/llvm-profdata" merge --sparse "profiles-$1"/*.profraw -o "$1.profdata"
    local objects=(covered/"$host"/debug/coverage)
    for object in covered/"$host"/debug/deps/{coverage,program}-*; do
        if [ -x "$object" ]; then objects+=(-object "$object"); fi
    done
    "$llvm/llvm-cov" export --summary-only --instr-profile "$1.profdata" "${objects[@]}" --sources src >"$1.json"
}

# Each process leaves a profile. The name has only the pid, which is the same in all sandboxes.
check_coverage_totals_are_equal() {
    local host llvm
    host=$(rustc -vV | sed -n 's/^host: //p')
    llvm=$(rustc --print target-libdir)/../bin
    [ -x "$llvm/llvm-cov" ] || rustup component add llvm-tools || skip 'the LLVM tools of the compiler cannot be had'
    rm -rf "$work/coverage"
    mkdir -p "$work/coverage/src" "$work/coverage/tests"
    cd "$work/coverage"
    printf '[package]\nname = "coverage"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >Cargo.toml
    cat >src/lib.rs <<'END'
pub fn sign(number: i32) -> &'static str {
    match number {
        ..0 => "minus",
        0 => "none",
        1.. => "plus",
    }
}

#[test]
fn minus() {
    assert_eq!(sign(-1), "minus");
}

#[test]
fn plus() {
    assert_eq!(sign(1), "plus");
}
END
    cat >src/main.rs <<'END'
fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("hello") => println!("hello"),
        Some("bye") => println!("bye"),
        Some(_) => println!("what?"),
        None => println!("nothing"),
    }
}
END
    cat >tests/program.rs <<'END'
fn said(word: &str) -> Vec<u8> {
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_coverage")).arg(word).output();
    program.unwrap().stdout
}

#[test]
fn hello() {
    assert_eq!(said("hello"), b"hello\n");
}

#[test]
fn bye() {
    assert_eq!(said("bye"), b"bye\n");
}
END
    measure_coverage outside
    husk test init --yes
    measure_coverage inside
    grep -q 'test hello ... ok' seen
    cmp outside.json inside.json
    # Some regions are covered, and some are not.
    python3 - inside.json <<'END'
import json, sys
regions = json.load(open(sys.argv[1]))["data"][0]["totals"]["regions"]
assert 0 < regions["covered"] < regions["count"], regions
print(regions)
END
}

# Fails if fewer tests pass inside than outside.
check_projects_of_four_registries_pass_without_options() {
    HUSK=$HUSK HERMETIC_WORK=$work ROUNDS=0 "$root/integration/hermetic/projects.sh"
}

checks=$(declare -F | sed -n 's/^declare -f check_//p')
passed=0 failed=0 skipped=0
for name in $checks; do
    if [ $# -gt 0 ] && ! grep -qF "$(printf '%s\n' "$@")" <<<"$name"; then continue; fi
    # Calling the check in a condition would disable `set -e` inside it.
    set +e
    (set -e; "check_$name") >"$work/$name.log" 2>&1
    code=$?
    set -e
    case $code in
        0) passed=$((passed + 1)); echo "hermetic $name ... ok" ;;
        77) skipped=$((skipped + 1)); grep '^skipped: ' "$work/$name.log" ;;
        *) failed=$((failed + 1)); echo "hermetic $name ... FAILED"; tail -n 30 "$work/$name.log" ;;
    esac
done
echo "hermetic: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
