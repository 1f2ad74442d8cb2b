# Turns documents of `mongoexport --jsonFormat=canonical` into plain JSON, with the moment
# `end` at which a TTL index on $date, a path like lastSeen or meta.lastSeen, with
# expireAfterSeconds $after ends them:
#   jq -c -f mongodb.jq --arg date lastSeen --argjson after 1800 export.json
# Whole numbers of more than 15 characters stay strings: jq would round them.
def iso: if . < 0 then . else "\(. / 1000 | floor | todate | .[:-1]).\("00\(. % 1000)" | .[-3:])Z" end;
def at($path): reduce ($path / ".")[] as $name ([.]; map(if type == "array" then .[] else . end | objects[$name]));
(at($date) | flatten | map(objects["$date"] | select(.)["$numberLong"] | tonumber) | min) as $first |
walk(if type != "object" then .
  elif has("$date") then .["$date"] | tonumber | iso
  elif has("$numberDouble") then .["$numberDouble"] | if test("^-?[0-9]") then tonumber else . end
  elif has("$numberInt") then .["$numberInt"] | tonumber
  else .["$oid"] // .["$numberLong"] // .["$numberDecimal"] // . end) |
if $first then .end = $first + 1000 * $after else . end
