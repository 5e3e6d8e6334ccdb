#!/bin/sh
# Makes an image with two layers from the hello program, a bundle of the image, and a container of the bundle. No
# registry is needed: the image is an archive as 'docker save' writes it. Then runs the program in throwaway sandboxes.
set -eu
cd "$(dirname "$0")/../.."

target=$(packaging/target.sh)
cargo build --quiet --release --target "$target" --package husk --bin husk --example hello
husk=$PWD/target/$target/release/husk
hello=$PWD/target/$target/release/examples/hello

work=$(mktemp -d)
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
# A user's layers may belong to other ids, so husk removes them.
trap 'rm -rf "$work/bundle" "$work/second"; "$husk" bundle --prune >"$work/pruned"; rm -rf "$work"' EXIT
cd "$work"

mkdir one two
cp "$hello" one/hello
echo 'from the lower layer' >one/note
echo 'from the upper layer' >two/note
for layer in one two; do
    tar --create --file "$layer.tar" --directory "$layer" --owner 0 --group 0 .
done
digest() { sha256sum "$1" | cut -d ' ' -f 1; }
case $target in aarch64*) machine=arm64 ;; *) machine=amd64 ;; esac
cat >config.json <<END
{
  "architecture": "$machine", "os": "linux",
  "config": { "Entrypoint": ["/hello"], "Env": ["GREETING=hello"], "WorkingDir": "/" },
  "rootfs": { "type": "layers", "diff_ids": ["sha256:$(digest one.tar)", "sha256:$(digest two.tar)"] }
}
END
echo '[{ "Config": "config.json", "RepoTags": ["hello:1"], "Layers": ["one.tar", "two.tar"] }]' >manifest.json
tar --create --file image.tar manifest.json config.json one.tar two.tar

echo "\$ husk bundle docker-archive:image.tar bundle"
"$husk" bundle docker-archive:image.tar bundle
for layer in bundle/husk-layers/[0-9]*; do
    echo "layer ${layer##*/}: $(readlink "$layer")"
done
echo "\$ husk run --bundle bundle hello"
sed 's/"terminal": *true/"terminal": false/' bundle/config.json >new.json
mv new.json bundle/config.json
"$husk" run --bundle bundle "image-$$"
echo "\$ husk bundle docker-archive:image.tar second      # the layers are in the store"
"$husk" bundle docker-archive:image.tar second
echo "\$ husk test --image docker-archive:image.tar"
"$husk" test --image docker-archive:image.tar
cat >image.toml <<END
image = "docker-archive:image.tar"
END
echo "\$ husk test --config image.toml -- /hello"
"$husk" test --config image.toml -- /hello
echo "\$ husk test --bundle second"
"$husk" test --bundle second
