#!/bin/sh
# Makes accounts with nsc, as docs/accounts.md#jwt-accounts says.
#
#   sh deploy/nsc.sh              # LAPSE and CLIENTS, and the credentials of lapse serve
#   sh deploy/nsc.sh APP billing  # an application that reads the log by the durable consumer billing
#
# An export is open to every account of the operator unless it is private, so each is: who
# imports it needs an activation token, which names this account and this subject.
set -eu

share() { # FROM TO SUBJECT [FLAG OF EXPORT…]: let one account import from another
  from=$1 to=$2 subject=$3
  shift 3
  nsc add export --account "$from" --private --name "$subject" --subject "$subject" "$@" || true # it has it already
  nsc generate activation --account "$from" --target-account "$to" --subject "$subject" --output-file token.jwt
}
take() { # TO SUBJECT [FLAG OF IMPORT…]: import what was shared last
  to=$1 subject=$2
  shift 2
  nsc add import --account "$to" --name "$subject" --token token.jwt "$@"
}

if [ $# = 0 ]; then
  nsc add account LAPSE
  nsc edit account LAPSE --js-disk-storage -1 --js-mem-storage 256M --js-streams 64 --js-consumer 4096
  nsc add account CLIENTS
  for subject in 'lapse.main.mutations.>' '$JS.API.INFO'; do
    share LAPSE CLIENTS "$subject" --service
    take CLIENTS "$subject"
  done
  share LAPSE CLIENTS '_INBOX.>'
  take CLIENTS '_INBOX.>'
  share LAPSE CLIENTS '_CLIENTS.>'
  take CLIENTS '_CLIENTS.>' --local-subject '>'

  # nats.conf says why each user may do what it may, and narrows log and bulk further.
  nsc add user --account LAPSE --name log
  nsc add user --account LAPSE --name bulk
  nsc add user --account LAPSE --name gate-log \
    --allow-pub '$JS.API.STREAM.INFO.LAPSE_main,$JS.API.STREAM.MSG.GET.LAPSE_main,$JS.API.DIRECT.GET.LAPSE_main' \
    --allow-pub '$JS.API.DIRECT.GET.LAPSE_main.>,$JS.API.CONSUMER.CREATE.LAPSE_main,$JS.API.CONSUMER.CREATE.LAPSE_main.>' \
    --allow-pub '$JS.API.CONSUMER.DURABLE.CREATE.LAPSE_main.*,$JS.API.CONSUMER.NAMES.LAPSE_main' \
    --allow-pub '$JS.API.CONSUMER.LIST.LAPSE_main,$JS.API.CONSUMER.INFO.LAPSE_main.*,$JS.API.CONSUMER.DELETE.LAPSE_main.*' \
    --allow-pub '$JS.API.CONSUMER.PAUSE.LAPSE_main.*,$JS.API.CONSUMER.UNPIN.LAPSE_main.*' \
    --allow-pub '$JS.API.CONSUMER.RESET.LAPSE_main.*,$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.*' \
    --allow-pub '$JS.API.STREAM.INFO.LAPSE_main_MUTATIONS,$JS.ACK.LAPSE_main.>,$JS.FC.LAPSE_main.>' \
    --allow-sub '_GATE.>'
  nsc add user --account CLIENTS --name service \
    --allow-pub '*.>' \
    --deny-pub 'lapse.>,$JS.>,$KV.>,$O.>,$SYS.>,$NRG.>,_PROCESSOR.>,_BULK.>,_GATE.>,_SERVICE.>,_OPERATOR.>,_CLIENTS.>' \
    --allow-sub 'lapse.main.api.>,$SRV.>'
  nsc add user --account CLIENTS --name gate-clients \
    --allow-pub '*.>' \
    --deny-pub 'lapse.>,$JS.>,$KV.>,$O.>,$SYS.>,$NRG.>,_PROCESSOR.>,_BULK.>,_GATE.>,_SERVICE.>,_OPERATOR.>,_CLIENTS.>' \
    --deny-pub '$SRV.>' \
    --allow-sub 'lapse.main.events.>,$JS.API.>,$JS.ACK.>,$JS.FC.>,$KV.>,$O.>'
  for user in log bulk gate-log; do
    nsc generate creds --account LAPSE --name $user --output-file $user.creds
  done
  for user in service gate-clients; do
    nsc generate creds --account CLIENTS --name $user --output-file $user.creds
  done
  exit
fi

app=$1 durable=$2
user=$(echo "$app" | tr '[:upper:]' '[:lower:]')
nsc add account "$app"
nsc edit account "$app" --js-disk-storage 1G --js-mem-storage 64M # nats.conf has 320 MB for LAPSE and APP
for subject in 'lapse.main.api.>' 'lapse.main.mutations.>' '$JS.ACK.LAPSE_main.'"$durable"'.>' '$JS.FC.LAPSE_main.>'; do
  share CLIENTS "$app" "$subject" --service
  take "$app" "$subject"
done
for request in 'STREAM.NAMES' 'STREAM.LIST' 'STREAM.INFO.LAPSE_main' 'STREAM.MSG.GET.LAPSE_main' \
  'CONSUMER.CREATE.LAPSE_main.>' 'CONSUMER.DURABLE.CREATE.LAPSE_main.*' 'CONSUMER.NAMES.LAPSE_main' \
  'CONSUMER.LIST.LAPSE_main' 'CONSUMER.INFO.LAPSE_main.*' 'CONSUMER.DELETE.LAPSE_main.*' \
  'CONSUMER.PAUSE.LAPSE_main.*' 'CONSUMER.UNPIN.LAPSE_main.*' 'CONSUMER.RESET.LAPSE_main.*'; do
  share CLIENTS "$app" "\$JS.API.$request" --service
  take "$app" "\$JS.API.$request" --local-subject "LAPSE.API.$request"
done
# lapse status --all
share CLIENTS "$app" '$SRV.INFO.lapse' --service --response-type Stream
take "$app" '$SRV.INFO.lapse'

# A further durable is one more share and take of this, and of its $JS.ACK above.
next="CONSUMER.MSG.NEXT.LAPSE_main.$durable"
share LAPSE "$app" "\$JS.API.$next" --service --response-type Stream --response-threshold 2m
take "$app" "\$JS.API.$next" --local-subject "LAPSE.API.$next"
# The token is for a part of what LAPSE exports: each application has inboxes of its own.
nsc generate activation --account LAPSE --target-account "$app" --subject "_INBOX.$user.>" --output-file token.jwt
take "$app" "_INBOX.$user.>"
nsc add user --account "$app" --name "$user"
nsc generate creds --account "$app" --name "$user" --output-file "$user.creds"
