package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestMsgIDsOfAnyBytes: any bytes that a header can hold, also those that no Go client
// writes, are a Nats-Msg-Id, which identifies the same mutation after a restart and a
// refold. Ids differ if their bytes do.
func TestMsgIDsOfAnyBytes(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	conn := w.Raw()
	inbox := w.Client.NewInbox()
	answers, err := w.Client.SubscribeSync(inbox)
	w.Check(err)
	w.Check(w.Client.Flush())
	ids := []string{"x  ", "\t y", "x\ry", "z\r", "0", "00", "a", "A", "a b", "a  b", "ä", "a\u0308", "\u2028", "日本語", "a: b", "%41", `"a"`, "a.b.*.>", "-1", "null",
		strings.Repeat("x", 254), strings.Repeat("x", 255), strings.Repeat("ä", 127), "\xff\xfe", "a\x80"}
	for b := range 256 {
		if b != '\n' && b != '\r' { // NATS reads a CR as a blank
			ids = append(ids, "b"+string([]byte{byte(b)})+"b")
		}
	}
	told := make([]string, len(ids))
	create := func() {
		t.Helper()
		for i, id := range ids {
			headers := "NATS/1.0\r\nNats-Msg-Id: " + id + "\r\n\r\n"
			_, err := fmt.Fprintf(conn, "HPUB lapse.main.api.document.create.c.%d %s %d %d\r\n%s{}\r\n", i, inbox, len(headers), len(headers)+2, headers)
			w.Check(err)
			m, err := answers.NextMsg(processortest.Patience)
			w.Check(err)
			if r, err := processortest.ReadReply(m); err != nil || r.Code != 201 {
				t.Errorf("%q: %s %v", id, r, err)
			} else if told[i] == "" {
				told[i] = string(r.Body)
			} else if string(r.Body) != told[i] {
				t.Errorf("%q is told %s, and was %s", id, r, told[i])
			}
		}
	}
	create()
	made := len(w.Events())
	w.Restart()
	if logs := w.Logs.String(); strings.Contains(logs, "folded again") {
		t.Error(logs)
	}
	w.Stop()
	w.RemoveProjection()
	w.Start()
	create() // a repeat gets the outcome of the first
	if n := len(w.Events()); n != made || made != len(ids)+1 {
		t.Errorf("%d ids made %d events, and then %d", len(ids), made, n)
	}

	// An empty or blank header is no id, and blanks around one do not count.
	for _, none := range []string{"", " ", "\t "} {
		w.Want(201, "document.create.c.none", `{}`, "Nats-Msg-Id", none)
		w.Want(409, "document.create.c.none", `{}`, "Nats-Msg-Id", none)
		w.Want(204, "document.delete.c.none", "")
	}
	w.Want(201, "document.create.c.blank", `{}`, "Nats-Msg-Id", " blank\t")
	w.Want(201, "document.create.c.blank", `{}`, "Nats-Msg-Id", "blank")
}

// TestHeaderTwice: a header that comes twice has one value; testdata/wire/headers.txt has those
// whose names differ in case.
func TestHeaderTwice(t *testing.T) {
	for again, refused := range map[string]bool{"1": false, "2": true} {
		if own, fault := schema.OwnHeaders(nats.Header{"If-Match": {"1", again}}); (fault != nil) != refused || own.Get("If-Match") != "1" {
			t.Errorf("1 and then %s: %v, %v", again, own, fault)
		}
	}
}
