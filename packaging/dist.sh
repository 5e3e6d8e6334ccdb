#!/bin/sh
# Makes the files of a release in target/dist: a tarball, a .deb, an .rpm, bills of materials and SHA256SUMS.
#
#     packaging/dist.sh                 for the architecture of this machine
#     ARCH=aarch64 packaging/dist.sh    for another one; needs rustup, or its linker and its standard library or root and apt
#     SOURCE_DATE_EPOCH=N ...           the time in the files, instead of that of the commit
#     HUSK_COMMIT=ID ...                the commit in the files, where the source is not a repository
#     HUSK_TOOLS=DIRECTORY ...          keeps the tools there instead of in target/tools
#
# The same source, compiler and C library give the same bytes in every directory and home (docs/decisions/054-release.md).
set -eu
umask 022
export LC_ALL=C TZ=UTC
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_TARGET_DIR CARGO_BUILD_TARGET MAKEFLAGS
cd "$(dirname "$0")/.."
root=$(pwd -P)
out=$root/target/dist
tools=${HUSK_TOOLS:-$root/target/tools}
version=$(sed -n '/^\[workspace.package\]/,/^$/ s/^version = "\(.*\)"/\1/p' Cargo.toml)
host=$(rustc -vV | sed -n 's/^host: //p')
arch=${ARCH:-${host%%-*}}
# With musl, unless its standard library cannot be had.
target=$(packaging/target.sh --add "$arch")

fail() {
    echo "dist: $*" >&2
    exit 1
}

# Debian has a compiler with the standard library for aarch64, which is unpacked for these builds only.
use_packaged_compiler() {
    [ "$host $arch" = "x86_64-unknown-linux-gnu aarch64" ] && compiler=$(integration/guest/toolchain.sh) || return 1
    export RUSTC="$compiler/usr/bin/rustc" LD_LIBRARY_PATH="$compiler/usr/lib/x86_64-linux-gnu" PATH="$compiler/usr/bin:$PATH"
}

check_target() {
    case $arch in x86_64 | aarch64) ;; *) fail "husk has no code for $arch: ARCH is x86_64 or aarch64" ;; esac
    library=$(rustc --print target-libdir --target "$target")
    set -- "$library"/libstd-*.rlib
    [ -e "$1" ] || use_packaged_compiler ||
        fail "the standard library for $target is missing in $library: install it, for example with 'rustup target add $target'"
    case $target in "$host" | *-musl) return 0 ;; esac
    name=$(echo "$target" | tr a-z- A-Z_)
    eval "linker=\${CARGO_TARGET_${name}_LINKER:-$arch-linux-gnu-gcc}"
    command -v "$linker" >/dev/null ||
        fail "the linker $linker is missing: install gcc-$(echo "$arch" | tr _ -)-linux-gnu, or set CARGO_TARGET_${name}_LINKER"
    export "CARGO_TARGET_${name}_LINKER=$linker"
}

find_commit() {
    if [ -e .git ]; then
        : "${HUSK_COMMIT:=$(git rev-parse HEAD)$(git diff --quiet HEAD || echo -dirty)}"
        : "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
    fi
    [ -n "${HUSK_COMMIT-}" ] || fail "this is not a git repository: set HUSK_COMMIT to the commit of the source"
    [ -n "${SOURCE_DATE_EPOCH-}" ] || fail "this is not a git repository: set SOURCE_DATE_EPOCH to the commit's time"
    export HUSK_COMMIT SOURCE_DATE_EPOCH
}

# Installs a tool of crates.io, unless this version is there. Runs outside of this tree, whose flags are husk's.
install_tool() { # NAME VERSION
    grep -qs "^\"$1 $2 " "$tools/.crates.toml" ||
        (cd / && cargo install --quiet --locked --root "$tools" "$1@$2") ||
        fail "$1 $2 cannot be installed"
}

# Replaces the paths of this machine in messages of panics by constant ones. A toolchain with the component rust-src
# would otherwise name the standard library's source by its path.
build() { # CARGO-OPTION...
    library=$(rustc --print sysroot)/lib/rustlib/src/rust
    compiler=$(rustc -vV | sed -n 's/^commit-hash: //p')
    flags="'--remap-path-prefix=$root=/husk', '--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo', \
        '--remap-path-prefix=$library=/rustc/$compiler'"
    cargo build --quiet --locked --target-dir "$out/build" --config "profile.release.strip = 'symbols'" \
        --config "target.'cfg(target_os = \"linux\")'.rustflags = [$flags]" "$@"
}

build_binaries() {
    build --release --target "$target" --package husk --bin husk
    build --release --target "$target" --package husk-shim --bin containerd-shim-husk-v1
    built=$out/build/$target/release
    # The manual and the completions are printed by a husk that runs here.
    printer=$built/husk
    [ "$arch" = "${host%%-*}" ] || {
        build --target "$host" --package husk --bin husk
        printer=$out/build/$host/debug/husk
    }
}

# Writes a bill of materials for each binary. The tool writes one beside each Cargo.toml of the workspace, under this
# name, and names packages of the workspace by their paths.
write_materials() { # DIRECTORY
    name=husk-dist-materials
    "$tools/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --target "$target" \
        --override-filename "$name"
    sed "s|$root|/husk|g" "$name.json" >"$1/husk.cdx.json"
    sed "s|$root|/husk|g" "crates/shim/$name.json" >"$1/containerd-shim-husk-v1.cdx.json"
    rm -f "$name.json" ./*/*/"$name.json" ./*/*/*/"$name.json"
}

# Writes the licences of the crates and of musl, which are linked into the binaries. Those under the Apache licence have husk's.
write_licences() { # FILE
    for package in husk husk-shim; do
        cargo tree --locked --quiet --target "$target" --package "$package" --edges normal,build --prefix none
    done | sed -n 's/^\([^ ]*\) v\([^ ]*\).*/\1-\2/p' | sort -u >"$out/crates"
    cargo metadata --locked --quiet --format-version 1 --filter-platform "$target" |
        grep -o '"manifest_path":"[^"]*"' | sed 's/.*:"\(.*\)\/Cargo.toml"/\1/' | sort |
        while read -r package; do
            grep -qFx "${package##*/}" "$out/crates" || continue
            for text in "$package"/[Ll][Ii][Cc][Ee][Nn][SsCc]* "$package"/COPYING* "$package"/NOTICE*; do
                case $text in *[Aa][Pp][Aa][Cc][Hh][Ee]* | *'*') continue ;; esac
                [ -f "$text" ] || continue
                printf '==== %s ====\n\n' "${package##*/}"
                cat "$text"
                echo
            done
        done >"$1"
    rm "$out/crates"
    case $target in *-musl) cat packaging/musl.txt >>"$1" ;; esac
}

stage() {
    rm -rf "$out/root"
    DESTDIR=$out/root PREFIX=/usr HUSK=$built/husk SHIM=$built/containerd-shim-husk-v1 PRINTER=$printer \
        packaging/install.sh install
    doc=$out/root/usr/share/doc/husk
    mkdir -p "$doc"
    install -m 644 LICENSE README.md CHANGELOG.md SECURITY.md "$doc"
    write_licences "$doc/LICENSES-of-crates.txt"
    write_materials "$doc"
    # The packages take the times from the files.
    find "$out/root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

pack() {
    name=husk-$version-$arch-linux
    tar --create --directory "$out/root" --transform "s|^usr|$name|" --sort=name --format=ustar \
        --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner usr | gzip --no-name --best >"$out/$name.tar.gz"
    "$tools/bin/cargo-deb" --quiet --no-build --no-strip --target "$target" --output "$out/"
    "$tools/bin/cargo-generate-rpm" generate-rpm --target "$target" --arch "$arch" --auto-req disabled \
        --output "$out/"
    for binary in husk containerd-shim-husk-v1; do
        cp "$out/root/usr/share/doc/husk/$binary.cdx.json" "$out/$binary-$version-$arch.cdx.json"
    done
    (cd "$out" && sha256sum husk*"$version"* containerd*"$version"* >SHA256SUMS)
}

find_commit
mkdir -p "$out"
install_tool cargo-deb 3.8.0
install_tool cargo-generate-rpm 0.21.1
install_tool cargo-cyclonedx 0.5.9
check_target
build_binaries
stage
pack
cat "$out/SHA256SUMS"
