#!/bin/sh
# Installs the binaries $HUSK and $SHIM below $DESTDIR$PREFIX (/usr/local), or uninstalls them, with husk's manual and
# shell completions.
#   install.sh install|uninstall
# Runs $PRINTER, or else $HUSK, to generate the manual and the completions.
set -eu
: "${PREFIX:=/usr/local}" "${DESTDIR:=}"
root=$DESTDIR$PREFIX
# containerd derives this name from the name of the runtime, io.containerd.husk.v1.
shim=$root/bin/containerd-shim-husk-v1
man=$root/share/man/man1
bash=$root/share/bash-completion/completions/husk
zsh=$root/share/zsh/site-functions/_husk
fish=$root/share/fish/vendor_completions.d/husk.fish

# Whether a directory belongs to every system.
is_of_the_system() {
    case $root in /usr | /usr/local) ;; *) return 1 ;; esac
    case ${1#"$root"/} in bin | share | share/man | share/man/man1) ;; *) return 1 ;; esac
}

case ${1:-} in
install)
    : "${HUSK:?is the binary to install}" "${SHIM:?is the shim to install}"
    : "${PRINTER:=$HUSK}"
    mkdir -p "$root/bin" "$man" "${bash%/*}" "${zsh%/*}" "${fish%/*}"
    install -m 755 "$HUSK" "$root/bin/husk"
    install -m 755 "$SHIM" "$shim"
    "$PRINTER" completion bash >"$bash"
    "$PRINTER" completion zsh >"$zsh"
    "$PRINTER" completion fish >"$fish"
    "$PRINTER" man >"$man/husk.1"
    # The verbs that husk(1) refers to.
    for verb in $(sed -n 's/^\.BR husk\\-\([a-z]*\) (1)$/\1/p' "$man/husk.1"); do
        "$PRINTER" man "$verb" >"$man/husk-$verb.1"
    done
    ;;
uninstall)
    rm -f "$root/bin/husk" "$shim" "$man/husk.1" "$man"/husk-*.1 "$bash" "$zsh" "$fish"
    # Also directories that are empty now, from the innermost on. A system's own stay, and those that are not below $root.
    for directory in "${bash%/*}" "${zsh%/*}" "${fish%/*}" "$man" "$root/bin"; do
        while [ "$directory" != "$root" ] && ! is_of_the_system "$directory"; do
            rmdir "$directory" 2>/dev/null || break
            directory=${directory%/*}
        done
    done
    ;;
*)
    echo "usage: $0 install|uninstall" >&2
    exit 2
    ;;
esac
