#!/bin/sh
# Runs the checks that a change must pass before review. They take less than a minute and need no root, and a network
# only for crates.
set -eu
cd "$(dirname "$0")/.."

have() {
    if "$@" --version >/dev/null 2>&1; then return 0; fi
    echo "skipped: no $*"
    return 1
}

# The spawn benchmark is slow to build, so .ci/run checks it instead.
set -- --workspace --exclude husk-bench-spawn

if have cargo fmt; then cargo fmt --all --check; fi
if have cargo clippy; then cargo clippy --quiet "$@" --all-targets -- -D warnings; fi
# Features of the library that husk does not use.
if have cargo clippy; then
    cargo clippy --quiet --package husk-spawn --all-features --all-targets -- -D warnings
fi
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --package husk-spawn --all-features --no-deps
RUSTDOCFLAGS='-D warnings' cargo doc --quiet "$@" --no-deps
cargo test --quiet "$@" --lib
cargo test --quiet --package husk-plan --test golden
cargo test --quiet --package husk --test tests -- house:: dependencies:: documents::
if have cargo deny; then
    cargo deny --offline --log-level error check bans licenses sources
    if cargo deny fetch db >/dev/null 2>&1; then
        cargo deny --log-level error check advisories
    else
        echo "skipped: advisories: their database cannot be fetched"
    fi
fi

# Compiles the code with the oldest compiler that the manifest permits, if rustup has it.
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if have cargo "+$oldest"; then
    cargo "+$oldest" check --quiet --target-dir target/oldest "$@"
fi

# Checks the code for the other architecture if its standard library is installed.
other=aarch64-unknown-linux-gnu
if [ -d "$(rustc --print sysroot)/lib/rustlib/$other/lib" ]; then
    cargo check --quiet "$@" --target "$other"
else
    echo "skipped: $other is not installed, so its code is not compiled"
fi
