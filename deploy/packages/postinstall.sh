#!/bin/sh
# deb calls it with `configure` and the version that was there, rpm with the number of
# versions that are there now. lapse is not started by an installation: the machine may have
# another NATS server at port 4222.
set -e
if [ "$1 $2" = "configure " ] && [ ! -e "$DPKG_ROOT/etc/lapse/lapse.env" ]; then # rpm has it
  install -D -m 0640 "$DPKG_ROOT/usr/share/lapse/lapse.env" "$DPKG_ROOT/etc/lapse/lapse.env"
fi
[ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ] || exit 0
systemctl daemon-reload
case "$1 $2" in
"configure "?* | "2 "*) systemctl try-restart lapse.service ;;
esac
