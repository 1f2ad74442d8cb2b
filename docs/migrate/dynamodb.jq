# Turns the items of a DynamoDB export in DynamoDB JSON into documents:
#   gunzip -c data/*.json.gz | jq -c -f dynamodb.jq > items.jsonl
# Numbers of more than 15 characters stay strings: jq would round them.
def number: if length > 15 then . else tonumber end;
def plain:
  to_entries[0] as {key: $type, value: $value} | $value |
  if $type == "N" then number
  elif $type == "NS" then map(number)
  elif $type == "M" then map_values(plain)
  elif $type == "L" then map(plain)
  elif $type == "NULL" then null
  else . end;
.Item | map_values(plain)
