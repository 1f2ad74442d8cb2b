#!/bin/sh
# Writes the keys of a NATS KV bucket as lines for lapse import:
#   {"id":"sess.7","expireAt":1795332312345,"value":{"user":"ann"}}
# Usage: sh nats-kv.sh BUCKET [OPTION OF nats]... > keys.jsonl
# It needs nats and jq. Exit code 1: keys are left out, or the end is missing.
stream=KV_${1:?name a bucket}
shift
info=$(nats "$@" stream info "$stream" --json) || exit 1
[ "$(echo "$info" | jq .state.messages)" -gt 0 ] || { echo "the bucket is empty" >&2; exit 0; }
nats "$@" sub --stream "$stream" --last-per-subject --terminate-at-end --wait 1m --dump=- | tr '\0' '\n' |
  jq -nr --argjson age "$(echo "$info" | jq '.config.max_age / 1000000')" '
    (("9007199254740993" | fromjson | tojson) == "9007199254740993") as $exact |
    def parsed: if test("^\\s*[{\\[]") and ($exact or (test("[0-9]{16}") | not))
      then . as $text | try fromjson catch $text else . end;
    def milliseconds: if test("^[0-9]+$") then tonumber * 1000
      else [scan("([0-9.]+)(h|ms|m|s)") | (.[0] | tonumber) * {h: 3600000, m: 60000, s: 1000, ms: 1}[.[1]]] | add end;
    inputs | (.Subject | split(".")[2:] | join(".")) as $key | (.Header // {}) as $header |
    (.Reply | split(".") | if length < 11 then .[7:] else .[9:] end) as [$time, $pending] |
    ($time | tonumber / 1000000 | floor) as $time | ($header["Nats-TTL"] // [""])[0] as $ttl |
    ( if $header["KV-Operation"] or $header["Nats-Marker-Reason"] then empty # a deleted key
      elif (.Data | @base64d | @base64) != .Data then "! \($key) is left out: not UTF-8"
      else { id: $key, value: (.Data | @base64d | parsed), expireAt: (
          if $ttl == "never" then null
          else [$age, ($ttl | select(. != "") | milliseconds)] | map(select(. > 0) + $time) | min end) } | tojson
      end ),
    if $pending == "0" then "end" else empty end' |
  awk '/^end/ { ended = 1; next } /^!/ { print substr($0, 3) >"/dev/stderr"; left = 1; next } { print }
    END { if (!ended) print "the dump has no end: run it again" >"/dev/stderr"; exit !ended || left }'
