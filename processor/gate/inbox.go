package gate

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/lapsedb/lapse/schema"
)

// clientsInbox starts the subjects in the account of the streams that reach clients:
// _CLIENTS.X there is X in the account of the clients. Inboxes without a prefix of
// their own have the same subject in both, so that consumers that were created before
// there were others keep their deliver_subject.
const clientsInbox = "_CLIENTS."

// streamsInbox returns the subject in the account of the streams for a client's inbox.
func streamsInbox(inbox string) string {
	if inbox == "" || strings.HasPrefix(inbox, schema.InboxPrefix) {
		return inbox
	}
	return clientsInbox + inbox
}

// shown returns a reply of JetStream as a client may see it: with inboxes as clients name
// them, and without those of consumers that others created. Whoever knew such an inbox could
// have other events delivered there.
func shown(reply []byte, to owner) ([]byte, error) {
	if !bytes.Contains(reply, []byte(`"deliver_subject"`)) {
		return reply, nil
	}
	var r map[string]any
	d := json.NewDecoder(bytes.NewReader(reply))
	d.UseNumber()
	if err := d.Decode(&r); err != nil {
		return nil, err
	}
	infos, _ := r["consumers"].([]any)
	for _, info := range append(infos, r) {
		info, _ := info.(map[string]any)
		c, _ := info["config"].(map[string]any)
		inbox, pushes := c["deliver_subject"].(string)
		metadata, _ := c["metadata"].(map[string]any)
		account, _ := metadata[schema.ConsumerAccount].(string)
		by, _ := metadata[madeBy].(string)
		switch {
		case pushes && to == (owner{account, by}):
			c["deliver_subject"] = strings.TrimPrefix(inbox, clientsInbox)
		case pushes:
			delete(c, "deliver_subject")
		}
	}
	return json.Marshal(r)
}

// inboxPrefix returns the first token of a reply subject, with its dot.
func inboxPrefix(reply string) string {
	token, _, _ := strings.Cut(reply, ".")
	return token + "."
}
