#!/bin/sh
# deb calls it with `configure` and the version that was there, rpm with the number of
# versions that are there now. lapse is not started by an installation: the machine may have
# another NATS server at port 4222.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1 $2" in
"configure "?* | "2 "*) systemctl try-restart lapse.service ;;
esac
