#!/bin/sh
# deb calls it with `remove` or `upgrade`, rpm with the number of versions that will be left.
set -e
[ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ] || exit 0
case "$1" in
remove | 0) systemctl disable --now lapse-backup.timer lapse.service ;;
esac
