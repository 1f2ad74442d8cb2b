package processor

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestBlanksInHeaders: a Nats-Msg-Id that no Go client would write is the same
// one after it has been in the log.
func TestBlanksInHeaders(t *testing.T) {
	for _, id := range []string{"x  ", "\t x", "x\ry", "x\r"} {
		w := newWire(t)
		w.want(201, "collection.create.c", "")
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.client.ConnectedUrl(), "nats://"))
		w.check(err)
		defer conn.Close()
		inbox := w.client.NewInbox()
		answers, err := w.client.SubscribeSync(inbox)
		w.check(err)
		w.check(w.client.Flush())
		upsert := func() {
			t.Helper()
			headers := "NATS/1.0\r\nNats-Msg-Id: " + id + "\r\n\r\n"
			_, err := fmt.Fprintf(conn, "HPUB lapse.main.api.document.upsert.c.a %s %d %d\r\n%s{}\r\n", inbox, len(headers), len(headers)+2, headers)
			w.check(err)
			m, err := answers.NextMsg(patience)
			w.check(err)
			if r, err := readReply(m); err != nil || r.code != 201 {
				t.Errorf("%q: %s %v", id, r, err)
			}
		}
		_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\n")
		w.check(err)
		upsert()
		w.restart()
		if logs := w.logs.String(); strings.Contains(logs, "folded anew") {
			t.Errorf("%q: %s", id, logs)
		}
		w.stop()
		w.removeProjection()
		w.start()
		upsert() // the repeat has the code of the first
	}
}
