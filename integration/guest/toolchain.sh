#!/bin/sh
# Prints the directory of a Rust compiler for aarch64, made of Debian's packages. Builds it first if it does not exist,
# from 130 MB. It is used from its directory, and leaves this machine's compiler and list of packages as they are.
#
#     export LD_LIBRARY_PATH=$(toolchain.sh)/usr/lib/x86_64-linux-gnu RUSTC=$(toolchain.sh)/usr/bin/rustc
#
# Needs root, apt, and the linker of gcc-aarch64-linux-gnu. Status 69 means that it cannot be had here.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

cannot() { echo "toolchain: $*" >&2; exit 69; }
command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || cannot "needs root and apt"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/husk
toolchain=$cache/toolchain-aarch64-$(sha256sum <"$here/toolchain.sh" | cut -c 1-16)
if [ -d "$toolchain" ]; then
    echo "$toolchain"
    exit
fi

echo "toolchain: unpacking a compiler in $toolchain" >&2
mkdir -p "$cache"
new=$(mktemp -d "$cache/new-XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 143' INT TERM

# apt with lists of its own, for both architectures, and without installed packages.
mkdir -p "$new/apt/lists/partial" "$new/apt/archives/partial"
touch "$new/apt/status"
cat >"$new/apt/conf" <<END
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::State "$new/apt";
Dir::State::status "$new/apt/status";
Dir::Cache "$new/apt";
END
export APT_CONFIG="$new/apt/conf"
apt-get -qq update >&2 || cannot "apt did not get the lists of packages"

# The packages that a package depends on with exactly its version, or whose names begin with WORDS.
depends() { apt-cache depends "$1" | sed -n "s/^ *Depends: \\($2.*\\)/\\1/p"; }
library=$(depends rustc-web:amd64 libstd-rust-web-dev | head -n 1)
[ -n "$library" ] || cannot "Debian has no rustc-web here"
driver=$(depends "$library" libstd-rust-web- | head -n 1)
llvm=$(depends "$driver" libllvm | head -n 1)
cd "$new/apt"
for package in rustc-web:amd64 "$library" "$driver" "$llvm" libstd-rust-web-dev:arm64; do
    apt-get -qq download "$package" >&2 || cannot "apt did not get $package"
done
for package in *.deb; do dpkg-deb -x "$package" "$new"; done
cd /
rm -rf "$new/apt" "$new/usr/share"
chmod 755 "$new"
LD_LIBRARY_PATH=$new/usr/lib/x86_64-linux-gnu "$new/usr/bin/rustc" --version >&2 || cannot "the compiler does not start"
# Another build at the same time makes the same compiler. The first to be renamed is kept.
mv -T "$new" "$toolchain" 2>/dev/null || [ -d "$toolchain" ]
echo "$toolchain"
