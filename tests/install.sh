#!/bin/sh
# Installs the named packages that are missing, as root on Debian, within five minutes. A failed installation is printed
# but is not an error: each caller reports what it skips.
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    dpkg-query --show "$@" >/dev/null 2>&1 ||
        DEBIAN_FRONTEND=noninteractive timeout 300 \
            sh -c 'apt-get -qq update && apt-get -qq install --no-install-recommends --yes "$@"' sh "$@" >/dev/null ||
        echo "not all of these could be installed: $*"
fi
