#!/bin/sh
# Runs two tests, each with a PostgreSQL and a Redis of its own. Both come from the distribution's packages. The database
# is created once, and each test gets an overlay of it.
set -eu
cd "$(dirname "$0")/../.."

for programs in /usr/lib/postgresql/*/bin; do :; done
if [ ! -x "$programs/initdb" ] || ! command -v redis-server >/dev/null; then
    echo "skipped: examples/services: needs PostgreSQL and Redis" >&2
    exit 0
fi
target=$(packaging/target.sh)
cargo build --quiet --release --target "$target" --package husk --bin husk
husk=$PWD/target/$target/release/husk

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed "s|/usr/lib/postgresql/15/bin|$programs|" examples/services/husk.toml >"$work/husk.toml"
cp examples/services/*.t "$work"
cd "$work"
# PostgreSQL refuses to run as root, so it runs as another user of a namespace.
unshare --user --map-user=postgres --map-group=postgres \
    "$programs/initdb" --pgdata template --username=postgres --auth=trust --no-sync >initdb.log
PATH=$programs:$PATH "$husk" test --tap --each -- ./*.t
