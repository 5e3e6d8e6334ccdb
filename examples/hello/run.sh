#!/bin/sh
# Makes a bundle from the config.json beside this file, prints its plan and runs it. For an ordinary user it takes the
# configuration of examples/rootless. Builds husk first, unless $HUSK is one; the program is in examples/ beside it.
set -eu
cd "$(dirname "$0")/../.."

husk=${HUSK-}
if [ -z "$husk" ]; then
    target=$(packaging/target.sh)
    cargo build --release --target "$target" --package husk --bin husk --example hello
    husk=target/$target/release/husk
    echo
fi

bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT
mkdir "$bundle/rootfs"
cp "${husk%/*}/examples/hello" "$bundle/rootfs/hello"
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

install='make install'
[ "$(id -u)" = 0 ] || install='make install PREFIX=$HOME/.local'
cat <<END

Next:
  $install
  husk bundle docker.io/library/busybox box && husk run --bundle box b1    # a shell in a container
  husk test -- make test                                                   # tests of a project, in a sandbox
END
