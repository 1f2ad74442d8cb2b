package service_test

import (
	"encoding/json"
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

// TestHeaderNames: our headers are case-insensitive, in requests and published mutations.
// Duplicates must have the same value.
func TestHeaderNames(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	w.Want(201, "document.create.c.a", `{"n":0}`)
	ask := func(tail, body string, header nats.Header) processortest.Reply {
		t.Helper()
		m, err := w.Client.RequestMsg(&nats.Msg{Subject: "lapse.main.api." + tail, Header: header, Data: []byte(body)}, processortest.Patience)
		w.Check(err)
		r, err := processortest.ReadReply(m)
		w.Check(err)
		return r
	}
	cases := []func(string) string{strings.ToLower, strings.ToUpper, func(s string) string { return s[:2] + strings.ToUpper(s[2:]) }}
	for i, as := range cases {
		match, id, seq := as("If-Match"), as("Nats-Msg-Id"), as("Lapse-Min-Seq")
		version := w.Etag("document.get.c.a")
		for _, c := range []struct {
			tail, body string
			header     nats.Header
			code       int
		}{
			{"document.replace.c.a", "{}", nats.Header{match: {"1"}}, 412},
			{"document.upsert.c.a", "{}", nats.Header{match: {"1"}}, 412},
			{"document.upsert.c.none", "{}", nats.Header{match: {"1"}}, 404},
			{"document.patch.c.a", "{}", nats.Header{match: {""}}, 412},
			{"document.delete.c.a", "", nats.Header{match: {"1"}, "X-Other": {"1"}}, 412},
			{"collection.replace.c", "", nats.Header{match: {"9"}}, 412},
			{"collection.delete.c", "", nats.Header{match: {"9"}}, 412},
			{"document.upsert.c.a", "{}", nats.Header{match: {version, "1"}}, 400},
			{"document.upsert.c.a", "{}", nats.Header{match: {version}, "iF-mATCH": {"1"}}, 400},
			{"document.upsert.c.a", "{}", nats.Header{id: {"x"}, "nAts-Msg-Id": {"y"}}, 400},
			{"document.get.c.a", "", nats.Header{seq: {"0"}, "Lapse-MIN-Seq": {"1"}}, 400},
			{"document.get.c.a", "", nats.Header{seq: {"x"}}, 400},
			{"query.c", "", nats.Header{seq: {""}}, 400},
			{"batch.c", `{"operations":[]}`, nats.Header{match: {"1"}}, 400},
			{"batch.c", `{"operations":[]}`, nats.Header{id: {"1"}}, 400},
			{"document.upsert.c.a", `{}`, nats.Header{match: {version, version}, "iF-mATCH": {version}, id: {fmt.Sprint("m", i)}}, 200},
			{"document.upsert.c.a", `{}`, nats.Header{"Nats-Msg-Id": {fmt.Sprint("m", i)}}, 200}, // repeated
			{"document.get.c.a", "", nats.Header{seq: {"1"}}, 200},
		} {
			before := w.End()
			if r := ask(c.tail, c.body, c.header); r.Code != c.code {
				t.Errorf("%s with %q: %s, want %d", c.tail, c.header, r, c.code)
			}
			if after := w.End(); c.code >= 400 && after != before {
				t.Errorf("%s with %q went through: %s", c.tail, c.header, w.Summary(before))
			}
		}
		w.Want(204, "document.delete.c.a", "")
		w.Want(201, "document.create.c.a", `{"n":0}`)

		before := w.End()
		w.Publish("document.upsert.c.a", "{}", match, "1")
		w.Publish("document.delete.c.a", "", match, "1")
		w.Publish("document.upsert.c.a", "{}", match, "*", "iF-mATCH", "1")
		w.Judged(w.Publish("document.create.c.a", "{}", id, fmt.Sprint("m", i)))
		var codes []int
		for _, e := range w.Events() {
			if e.Seq > before && e.Type == schema.MutationRejected {
				var r struct{ Code int }
				w.Check(json.Unmarshal(e.Body, &r))
				codes = append(codes, r.Code)
			}
		}
		if fmt.Sprint(codes) != "[412 412 400 400]" || int(w.End()-before) != len(codes) {
			t.Errorf("with %q mutations of the stream are refused with %v, and the log has %s", match, codes, w.Summary(before))
		}
	}
	w.Want(200, "document.get.c.a", "")
}
