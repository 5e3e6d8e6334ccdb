#!/bin/sh
# Runs a test whose inputs are declared. It is run again only after an input has changed.
set -eu
cd "$(dirname "$0")/../.."

target=$(packaging/target.sh)
cargo build --quiet --release --target "$target" --package husk --bin husk
husk=$PWD/target/$target/release/husk

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R examples/cache "$work/project"
cd "$work/project"

check() {
    echo "\$ husk test --cache ../store --inputs 'data/**' -- ./check.sh"
    "$husk" test --cache ../store --inputs 'data/**' -- ./check.sh 2>../notes
    cat ../notes
}

check
check
grep -qx 'husk: cached' ../notes
# The program does not see this file, so a change of it does not matter.
echo changed >notes.txt
check
grep -qx 'husk: cached' ../notes
echo 4 >>data/numbers
check
if grep -q cached ../notes; then
    exit 1
fi
