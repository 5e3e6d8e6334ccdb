#!/bin/sh
# Makes a bundle from the config.json beside this file, prints its plan and runs it. For an ordinary user it takes the
# configuration of examples/rootless.
set -eu
cd "$(dirname "$0")/../.."

target=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --package husk --bin husk --example hello
husk=target/$target/release/husk

bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT
mkdir "$bundle/rootfs"
cp "target/$target/release/examples/hello" "$bundle/rootfs/hello"
if [ "$(id -u)" = 0 ]; then
    cp examples/hello/config.json "$bundle"
else
    sed "s/\"hostID\": 1000/\"hostID\": $(id -u)/" examples/rootless/config.json >"$bundle/config.json"
fi

echo "\$ husk plan"
"$husk" plan "$bundle" | sed -n '1,12p;13s/.*/     .../p;$p'
echo
echo "\$ husk run hello"
"$husk" run --bundle "$bundle" "hello-$$"
