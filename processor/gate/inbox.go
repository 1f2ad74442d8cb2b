package gate

import (
	"bytes"
	"strings"

	"github.com/lapsedb/lapse/schema"
)

// delivery starts the subjects in the account of the streams that reach clients:
// _CLIENTS.X there is X in the account of the clients. Inboxes without a prefix of
// their own have the same subject in both, so that consumers that were created before
// there were others keep their deliver_subject.
const delivery = "_CLIENTS."

// streamsInbox returns the subject in the account of the streams for a client's inbox.
func streamsInbox(inbox string) string {
	if inbox == "" || strings.HasPrefix(inbox, schema.InboxPrefix) {
		return inbox
	}
	return delivery + inbox
}

// clientsReply returns a reply of JetStream with the inboxes as clients name them. In
// JSON, quotes within a text are escaped, so this finds fields only.
func clientsReply(reply []byte) []byte {
	const field = `"deliver_subject":"`
	return bytes.ReplaceAll(reply, []byte(field+delivery), []byte(field))
}

// inboxPrefix returns the first token of a reply subject, with its dot.
func inboxPrefix(reply string) string {
	token, _, _ := strings.Cut(reply, ".")
	return token + "."
}
