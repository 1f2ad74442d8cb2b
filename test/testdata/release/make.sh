#!/bin/bash
# Makes store.tar.gz and log.jsonl with the binary of a release:
#
#   make.sh LAPSE
#
# It kills the server after the projection's last write, so that the store has both a
# projection that is behind the log and a snapshot.
set -euo pipefail
lapse=$(realpath "$1")
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'kill -9 %1 2>/dev/null; rm -rf "$dir"' EXIT
"$lapse" serve --store-dir "$dir/store" --listen 127.0.0.1:4222 --console off 2>"$dir/log" &
until grep -q ready "$dir/log"; do sleep 0.1; done
document() { "$lapse" document "$@" >/dev/null; }
"$lapse" collection create orders --default-ttl 2000000000 --include-path /customer --previous-images --warn-before 60 >/dev/null
for n in 1 2 3 4 5 6 7 8 9; do document create orders d$n "{\"customer\":\"C$((n % 3))\",\"total\":$n}"; done
document create orders short '{"total":1}' --ttl 1
document create orders never '{}' --ttl -1
document replace orders d1 '{"customer":"C1","total":10}'
document delete orders d2
document patch orders d3 '{"total":null,"paid":true}'
document touch orders d4
document hold orders d5
document hold orders d6
document release orders d6
document restore orders d2
document upsert orders d7 '{"customer":"C7"}' --expire-at 2050-01-01T00:00:00Z
"$lapse" collection create lazy --default-ttl -1 --indexing-mode lazy --include-path /a >/dev/null
document create lazy a '{"a":1}'
"$lapse" collection create gone >/dev/null
"$lapse" collection delete gone >/dev/null
until "$lapse" export | grep -q DocumentExpired; do sleep 0.1; done
"$lapse" snapshot create >/dev/null
document create orders late '{"total":99}'
"$lapse" status | sed 's/.*"digest":"\([^"]*\)".*/digest \1/'
"$lapse" snapshot list
"$lapse" export >log.jsonl
kill -9 %1
wait %1 || true
tar -C "$dir" --sort=name --owner=0 --group=0 --exclude=lock -czf store.tar.gz store
