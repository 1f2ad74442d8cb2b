#!/bin/sh
# Writes the strings and hashes of a Redis database as lines for lapse import:
#   {"id":"sess:7","expireAt":1795332312345,"value":{"user":"ann"}}
# Usage: sh redis.sh [PATTERN [OPTION OF redis-cli]...] > keys.jsonl
# It needs redis-cli 7 and jq. Exit code 1: keys are left out, or the end is missing.
pattern=${1:-*}
[ $# -eq 0 ] || shift
{ redis-cli "$@" --no-raw --scan --pattern "$pattern" && echo; } |
  awk '/./ { print "ECHO " $0 "\nTIME\nPTTL " $0 "\nGET " $0 "\nHGETALL " $0; next } { print "DBSIZE" }' |
  redis-cli "$@" --json | sed 's/^error:"WRONGTYPE.*/false/' |
  jq -nr '
    (("9007199254740993" | fromjson | tojson) == "9007199254740993") as $exact |
    def parsed: if test("^\\s*[{\\[]") and ($exact or (test("[0-9]{16}") | not))
      then . as $text | try fromjson catch $text else . end;
    inputs as $key | if ($key | type) == "number" then "end" else # DBSIZE comes last
      input as $time | input as $left | input as $string | input as $hash |
      if $left == -2 or $string == null or $hash == {} then empty # it expired meanwhile
      elif ($string or $hash) == false then "! \($key | tojson) is left out: neither string nor hash"
      elif [$key, $string, $hash] | tojson | contains("\ufffd") then "! \($key | tojson) is left out: not UTF-8"
      else { id: $key, value: (if $hash then $hash | with_entries({key, value: (.value | parsed)}) else $string | parsed end),
        expireAt: (if $left < 0 then null
          else ($time[0] | tonumber) * 1000 + ($time[1] | tonumber / 1000 | floor) + $left end) } | tojson
      end
    end' |
  awk '/^end/ { ended = 1; next } /^!/ { print substr($0, 3) >"/dev/stderr"; left = 1; next } { print; found = 1 }
    END { if (!ended) print "the dump has no end: run it again" >"/dev/stderr"
      else if (!found && !left) print "no key matches: is it the pattern, and the database (-n)?" >"/dev/stderr"; exit !ended || left }'
