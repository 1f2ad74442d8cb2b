package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

type order struct {
	Total int    `json:"total"`
	Note  string `json:"note,omitempty"`
	TTL   int    `json:"ttl,omitempty"`
}

func TestDocuments(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	ctx := t.Context()
	s.answer("document.upsert.orders.SO%2F05", 201, `{"id":"SO/05","total":5,"note":"<b>","_ts":1431857103,"_etag":"7"}`)

	item, err := client.Upsert(ctx, coll, "SO/05", order{Total: 5, Note: "<b>"}, client.IfMatch("6"), client.MsgID("once"), client.MinSeq(3))
	if err != nil {
		t.Fatal(err)
	}
	want := client.Item[order]{ID: "SO/05", Value: order{Total: 5, Note: "<b>"}, ETag: "7", Modified: time.Unix(1431857103, 0).UTC(), Created: true}
	if item != want {
		t.Errorf("got %+v, want %+v", item, want)
	}
	m := s.last()
	if got := string(m.Data); got != `{"total":5,"note":"<b>"}` {
		t.Errorf("body %s", got)
	}
	for name, want := range map[string]string{"If-Match": "6", "Nats-Msg-Id": "once", "Lapse-Min-Seq": "3"} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("header %s: %q, want %q", name, got, want)
		}
	}

	s.answer("document.get.orders.a", 200, `{"id":"a","total":1,"_ts":2,"_etag":"3"}`)
	raw, err := client.Get[json.RawMessage](ctx, coll, "a")
	if err != nil || string(raw.Value) != `{"id":"a","total":1,"_ts":2,"_etag":"3"}` {
		t.Errorf("raw: %s, %v", raw.Value, err)
	}
	// Members whose names match reserved ones except for case are content.
	s.answer("document.get.orders.b", 200, `{"id":"b","ID":5,"_TS":"x","_Etag":"no","_ts":2,"_etag":"3"}`)
	if item, err := client.Get[json.RawMessage](ctx, coll, "b"); err != nil || item.ID != "b" || item.Modified.Unix() != 2 || item.ETag != "3" {
		t.Errorf("got %+v, %v", item, err)
	}
	s.answer("document.create.orders.a", 201, string(raw.Value))
	s.answer("document.replace.orders.a", 200, string(raw.Value))
	s.answer("document.patch.orders.a", 200, string(raw.Value))
	s.answer("document.delete.orders.a", 204, "")
	if _, err := client.Create(ctx, coll, "a", order{}); err != nil {
		t.Error(err)
	}
	if item, err := client.Replace(ctx, coll, "a", order{}); err != nil || item.Created {
		t.Error(item, err)
	}
	patched, err := client.Patch[order](ctx, coll, "a", map[string]any{"note": nil})
	if err != nil || patched.Value.Total != 1 || string(s.last().Data) != `{"note":null}` {
		t.Error(patched, err, string(s.last().Data))
	}
	if err := client.Delete(ctx, coll, "a"); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	s := newStandin(t).serve()
	c := s.client()
	coll := s.collection(c)
	ctx := t.Context()
	get := func(id string) error { _, err := client.Get[order](ctx, coll, id); return err }

	s.answer("document.get.orders.gone", 404, `{"code":404,"error":"document_not_found","message":"no document \"gone\" in orders"}`)
	s.answer("document.get.orders.odd", 418, `tea`)
	s.answer("document.get.orders.silent", 0, "")

	err := get("gone")
	if !errors.Is(err, client.ErrDocumentNotFound) || errors.Is(err, client.ErrCollectionNotFound) {
		t.Errorf("gone: %v", err)
	}
	var coded *client.Error
	if !errors.As(err, &coded) || coded.Code != 404 || coded.Message != `no document "gone" in orders` {
		t.Errorf("gone: %#v", coded)
	}
	if err := get("odd"); !errors.As(err, &coded) || coded.Code != 418 {
		t.Errorf("odd: %v", err)
	}
	if _, err := s.client(client.WithTimeout(100*time.Millisecond)).Do(ctx, "document.get", "orders", "silent", nil); !errors.Is(err, client.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent: %v", err)
	}
	if err := get(""); !errors.Is(err, client.ErrBadID) {
		t.Errorf("no id: %v", err)
	}
	if _, err := c.Collection(ctx, "or.ders"); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("bad collection name: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := client.Get[order](cancelled, coll, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := client.Upsert(ctx, coll, "a", make(chan int)); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("not JSON: %v", err)
	}
	if _, err := client.Upsert(ctx, coll, "a", string(make([]byte, 2<<20))); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("too large for NATS: %v", err)
	}
	if _, err := s.client(client.WithDatabase("other")).Status(ctx); !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("not served: %v", err)
	}
	if _, err := client.New(s.nc, client.WithDatabase("Main")); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("bad database name: %v", err)
	}
	if _, err := client.Connect("nats://u:secret@127.0.0.1:1"); !errors.Is(err, client.ErrUnavailable) ||
		err.Error() != "no NATS server answers at nats://u:xxxxx@127.0.0.1:1: start `lapse serve`, or connect to another address" {
		t.Errorf("no server: %v", err)
	}
	if _, err := client.Connect(s.server.ClientURL()); !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("no credentials: %v", err)
	}
}

func TestReadYourWrites(t *testing.T) {
	s := newStandin(t).serve()
	s.answer("status", 200, `{}`)
	for _, session := range []bool{false, true} {
		var opts []client.Option
		want := ""
		if session {
			opts, want = append(opts, client.WithReadYourWrites()), "9"
		}
		c := s.client(opts...)
		for range 2 {
			if _, err := c.Status(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.last().Header.Get("Lapse-Min-Seq"); got != want {
			t.Errorf("session %v: Lapse-Min-Seq %q, want %q", session, got, want)
		}
	}
}

// TestNATSOptions: options of nats.go reach the connection, and a user's error handler
// does not replace the client's.
func TestNATSOptions(t *testing.T) {
	s := newStandin(t)
	violations := make(chan error, 10)
	c, err := client.Connect("", client.WithNATSOptions(nats.InProcessServer(s.server), nats.UserInfo("nobody", "x"), nats.Name("mine"), nats.CustomInboxPrefix("_INBOX.mine"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err })))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if name, inbox := c.Conn().Opts.Name, c.Conn().NewInbox(); name != "mine" || !strings.HasPrefix(inbox, "_INBOX.mine.") {
		t.Errorf("name %q, inbox %q", name, inbox)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("status: %v", err)
	}
	if err := <-violations; !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("the handler has %v", err)
	}
}

// TestDenied: calls to a database without permission fail at once, not by timeout.
func TestDenied(t *testing.T) {
	s := newStandin(t)
	for _, name := range []string{"main", "other"} {
		c, err := client.Connect("", client.WithDatabase(name), client.WithTimeout(patience), client.WithNATSOptions(nats.InProcessServer(s.server), nats.UserInfo("nobody", "x")))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		at := time.Now()
		if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("status: %v", err)
		}
		if _, err := c.Submit(t.Context(), "document.delete", "c", "a", nil); !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("submit: %v", err)
		}
		for _, err := range c.Changes(t.Context()) {
			if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("changes: %v", err)
			}
		}
		if took := time.Since(at); took > patience/2 {
			t.Errorf("took %v", took)
		}
	}
}
