#!/bin/sh
# Installs what some tests need beside Python (Debian names), where this user may. Elsewhere those tests are
# skipped, each with its reason; in CI (CI=true) they fail instead.
set -eu

packages=""
command -v strace >/dev/null 2>&1 || packages="$packages strace"
command -v setsid >/dev/null 2>&1 || packages="$packages util-linux"
[ -n "$packages" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq >/dev/null && apt-get install -y -qq $packages >/dev/null && exit 0
fi
echo "not installed:$packages (tests that need them will say so)"
