#!/bin/sh
# Regenerates order.ld. Records every instruction that the commands engines call execute, and finds their functions in
# the linker's map. Needs root, and LLD for the format of the map; rustc includes LLD for x86_64.
set -eu
cd "$(dirname "$0")/../.."
order=$PWD/packaging/order/order.ld

# Records inside namespaces of its own, with cgroups of version 2, which most hosts have.
if [ "${1-}" != --record ]; then
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    target=$(packaging/target.sh)
    case $target in
    *-musl) map=-Map=$work/map ;;
    *) map=-Wl,-Map=$work/map ;;
    esac
    cargo build --quiet --release --target "$target" --example guest
    cargo rustc --quiet --release --target "$target" --bin husk -- -C "link-arg=$map"
    cp "target/$target/release/husk" "$work/husk"
    cc -O2 -o "$work/step" packaging/order/step.c
    mkdir -p "$work/bundle/rootfs/proc"
    cp "target/$target/release/examples/guest" "$work/bundle/rootfs/guest"
    unshare --mount --pid --fork --kill-child --mount-proc "$PWD/packaging/order/write.sh" --record "$work"
    exit
fi
work=$2
husk=$work/husk state=$work/containers
"$husk" spec --bundle "$work/bundle"
sed -i 's/"terminal": true/"terminal": false/; s/"sh"/"\/guest", "wait"/' "$work/bundle/config.json"

look() { # NAME ARGUMENTS...
    name=$1
    shift
    "$work/step" "$work/$name" "$husk" "$@" </dev/null >"$work/output" 2>&1 || { cat "$work/output" >&2; exit 1; }
}
id=order-$$
trap '"$husk" --root "$state" delete --force "$id" 2>/dev/null || true' EXIT
look_at_life() { # SUFFIX
    look "create$1" --root "$state" create --bundle "$work/bundle" "$id"
    look "start$1" --root "$state" start "$id"
    look "state$1" --root "$state" state "$id"
    look "exec$1" --root "$state" exec "$id" /guest exit 0
    look "kill$1" --root "$state" kill "$id" KILL
    "$husk" --root "$state" wait "$id" >/dev/null
    look "delete$1" --root "$state" delete "$id"
    sed -i 's/"wait"/"exit", "0"/' "$work/bundle/config.json"
    look "run$1" --root "$state" run --bundle "$work/bundle" "$id"
    sed -i 's/"exit", "0"/"wait"/' "$work/bundle/config.json"
}
v1=''
if [ "$(stat --file-system --format %T /sys/fs/cgroup)" != cgroup2fs ]; then
    look_at_life 1
    v1='run1 create1 exec1 start1 state1 kill1 delete1'
    umount --recursive --lazy /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
look_at_life ''
look version --version
look test test -- "$work/bundle/rootfs/guest" exit 0

# Prints linker-script patterns of the functions that were executed. A line of the map has the address, load address,
# size, alignment and FILE:(SECTION); the lines are sorted by address. The functions of the first command come first. After
# them come those that the second one executes besides, and so on. Of these, functions that the same commands execute are
# side by side, so that a command touches few others. Wildcards replace the parts of a name that change with the compiler:
# the crate's disambiguator (Cs), back references (B), and the number of a copy.
list() {
    awk -v map="$work/map" '
        function padded(address) { address = sprintf("%16s", address); gsub(" ", "0", address); return "x" address }
        BEGIN {
            while ((getline line < map) > 0)
                if (match(line, /[^ ]+:\(\.(text|iplt)[^)]*\)$/)) {
                    name = substr(line, RSTART)
                    split(line, words)
                    if (words[3] != "0") { names[++count] = name; begins[count] = padded(words[1]) }
                }
        }
        FNR == 1 { at = 1; command = substr("abcdefghijklmnopqrstuvwxyz", ++commands, 1) }
        {
            while (at < count && begins[at + 1] <= padded($1)) at++
            if (index(by[at], command) == 0) by[at] = by[at] command
        }
        END { for (at in by) print substr(by[at], 1, 1), length(by[at]), by[at], at, names[at] }' "$@" |
        LC_ALL=C sort -k 1,1 -k 2,2nr -k 3,3 -k 4,4n | cut -d ' ' -f 5 |
        sed -n 's/^.*\/\(lib[a-z]*\)[^/]*\.a(\(.*\)):(\(.*\))$/*\1*.a:\2(\3)/p
            s/^.*\/\(crt[0-9A-Za-z]*\.o\):\((\.text)\)$/*\1\2/p
            s/^.*:(\(\.text\..*\))$/*(\1)/p
            s/^<internal>:(\(\.iplt\))$/*(\1)/p' |
        sed 's/Cs[0-9A-Za-z]*_/Cs*_/g; s/B[0-9A-Za-z]*_/B*_/g; s/\.[0-9]*)$/.*)/' |
        awk '!said[$0]++'
}
cd "$work"
cat >"$order" <<END
/* Code that the commands of an engine execute: written by write.sh. */
SECTIONS
{
  .text.order :
  {
$(list version state start kill delete create run exec test $v1 | sed 's/^/    /')
    /* And the other steps of the child. */
    *(.text.*11husk_script*)
    *(.text.*8husk_sys*)
  }
}
INSERT BEFORE .text;
END
