#!/bin/sh
# Installs what some tests need beside Python (Debian names), where this user may. Elsewhere those tests are
# skipped, each with its reason; in CI (CI=true) they fail instead.
set -eu

packages=""
command -v strace >/dev/null 2>&1 || packages="$packages strace"
command -v setsid >/dev/null 2>&1 || packages="$packages util-linux"
# Machines that share nothing with the server are network namespaces.
[ -n "$(PATH="$PATH:/usr/sbin:/sbin" command -v ip)" ] || packages="$packages iproute2"
command -v scontrol >/dev/null 2>&1 || packages="$packages slurm-client"
# The tests of the Slurm engine start a Slurm of their own, with its accounts; nothing of it starts with the machine.
for pair in slurmctld:slurmctld slurmd:slurmd slurmdbd:slurmdbd munged:munge mariadbd:mariadb-server; do
    [ -n "$(PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}")" ] || packages="$packages ${pair#*:}"
done
# The tests of containers run images made of a static busybox; Podman starts nothing with the machine.
for pair in podman:podman runc:runc ch-run:charliecloud bwrap:bubblewrap busybox:busybox-static newuidmap:uidmap; do
    [ -n "$(PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}")" ] || packages="$packages ${pair#*:}"
done
# Fonts of the invoices: Chinese, and one without Chinese to see what becomes of it then.
ls /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc >/dev/null 2>&1 || packages="$packages fonts-noto-cjk"
ls /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf >/dev/null 2>&1 || packages="$packages fonts-dejavu-core"
# The pages are measured in it, at the widths of a telephone, a tablet and a desk.
command -v chromium >/dev/null 2>&1 || packages="$packages chromium"
# The tests start a PostgreSQL of their own: that of the system, or of the wheel pgserver, which Python 3.13 lacks.
if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null 2>&1 \
    && ! .venv/bin/python -c "import pgserver" >/dev/null 2>&1; then
    packages="$packages postgresql"
fi
[ -n "$packages" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    case "$packages" in *postgresql*)  # no server of its own that starts with the machine
        mkdir -p /etc/postgresql-common
        [ -e /etc/postgresql-common/createcluster.conf ] \
            || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf ;;
    esac
    apt-get update -qq >/dev/null && apt-get install -y -qq $packages >/dev/null && exit 0
fi
echo "not installed:$packages (tests that need them will say so)"
