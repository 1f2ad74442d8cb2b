#!/bin/sh
# The data in /var/lib/lapse stay, also after a purge.
set -e
if [ "$1" = purge ]; then # deb only
  rm -f "$DPKG_ROOT/etc/lapse/lapse.env"
  rmdir --ignore-fail-on-non-empty "$DPKG_ROOT/etc/lapse" 2>/dev/null || true
fi
[ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ] || exit 0
systemctl daemon-reload
