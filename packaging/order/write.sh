#!/bin/sh
# Regenerates order.ld. Records every instruction that the commands engines call execute, and finds their functions in
# the linker's map. Needs root, and LLD for the format of the map; rustc includes LLD for x86_64.
set -eu
cd "$(dirname "$0")/../.."
order=$PWD/packaging/order/order.ld

work=$(mktemp -d)
husk=$work/husk state=$work/containers id=order-$$
trap '"$husk" --root "$state" delete --force "$id" 2>/dev/null || true; rm -rf "$work"' EXIT
target=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --example guest
cargo rustc --quiet --release --bin husk -- -C "link-arg=-Wl,-Map=$work/map"
cp "target/$target/release/husk" "$husk"
cc -O2 -o "$work/step" packaging/order/step.c

mkdir -p "$work/bundle/rootfs/proc"
cp "target/$target/release/examples/guest" "$work/bundle/rootfs/guest"
"$husk" spec --bundle "$work/bundle"
sed -i 's/"terminal": true/"terminal": false/; s/"sh"/"\/guest", "wait"/' "$work/bundle/config.json"

look() { # NAME ARGUMENTS...
    name=$1
    shift
    "$work/step" "$work/$name" "$husk" "$@" </dev/null >"$work/output" 2>&1 || { cat "$work/output" >&2; exit 1; }
}
look version --version
look create --root "$state" create --bundle "$work/bundle" "$id"
look start --root "$state" start "$id"
look state --root "$state" state "$id"
look exec --root "$state" exec "$id" /guest exit 0
look kill --root "$state" kill "$id" KILL
"$husk" --root "$state" wait "$id" >/dev/null
look delete --root "$state" delete "$id"
sed -i 's/"wait"/"exit", "0"/' "$work/bundle/config.json"
look run --root "$state" run --bundle "$work/bundle" "$id"
look test test -- "$work/bundle/rootfs/guest" exit 0

# Prints linker-script patterns of the functions that were executed. A line of the map has the address, load address,
# size, alignment and FILE:(SECTION); the lines are sorted by address. Wildcards replace the parts of a name that change
# with the compiler: the crate's disambiguator (Cs), back references (B), and the number of a copy.
list() {
    awk -v map="$work/map" '
        function padded(address) { address = sprintf("%16s", address); gsub(" ", "0", address); return "x" address }
        BEGIN {
            while ((getline line < map) > 0)
                if (match(line, /[^ ]+:\(\.text[^)]*\)$/)) {
                    name = substr(line, RSTART)
                    split(line, words)
                    if (words[3] != "0") { names[++count] = name; begins[count] = padded(words[1]) }
                }
        }
        FNR == 1 { at = 1 }
        {
            while (at < count && begins[at + 1] <= padded($1)) at++
            if (!said[at]++) print names[at]
        }' "$@" |
        sed -n 's/^.*\/\(lib[a-z]*\)[^/]*\.a(\(.*\)):(\(.*\))$/*\1*.a:\2(\3)/p
            s/^.*\/\(crt[0-9A-Za-z]*\.o\):\((\.text)\)$/*\1\2/p
            s/^.*:(\(\.text\..*\))$/*(\1)/p' |
        sed 's/Cs[0-9A-Za-z]*_/Cs*_/g; s/B[0-9A-Za-z]*_/B*_/g; s/\.[0-9]*)$/.*)/' |
        awk '!said[$0]++'
}
cd "$work"
cat >"$order" <<END
/* Code that the commands of an engine execute, what is needed most often first: written by write.sh. */
SECTIONS
{
  .text.order :
  {
$(list version state start kill delete create exec run test | sed 's/^/    /')
    /* And the child, which nobody looks at. */
    *(.text.*10husk_script*)
    *(.text.*8husk_sys*)
    *(.text.*10husk_spawn5clone*)
  }
}
INSERT BEFORE .text;
END
