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

// TestDocuments: an item has what the reply says, whatever members its content has.
func TestDocuments(t *testing.T) {
	s := newStandin(t).serve()
	coll, ctx := s.collection(s.client()), t.Context()
	s.answer("document.upsert.orders.SO%2F05", 201, `{"id":"SO/05","total":5,"note":"<b>","_ts":1431857103,"_etag":"7"}`)
	item, err := client.Upsert(ctx, coll, "SO/05", order{Total: 5, Note: "<b>"})
	want := client.Item[order]{ID: "SO/05", Value: order{Total: 5, Note: "<b>"}, ETag: "7", Modified: time.Unix(1431857103, 0).UTC(), Created: true}
	if err != nil || item != want || string(s.last().Data) != `{"total":5,"note":"<b>"}` {
		t.Errorf("got %+v, %v, want %+v, sent %s", item, err, want, s.last().Data)
	}
	// Members whose names match reserved ones except for case are content.
	const text = `{"id":"b","ID":5,"_TS":"x","_Etag":"no","_ts":2,"_etag":"3"}`
	s.answer("document.get.orders.b", 200, text)
	if item, err := client.Get[json.RawMessage](ctx, coll, "b"); err != nil || item.ID != "b" || item.Modified.Unix() != 2 || item.ETag != "3" || string(item.Value) != text {
		t.Errorf("got %+v, %v", item, err)
	}
	s.answer("document.replace.orders.a", 200, `{"id":"a"}`)
	if item, err := client.Replace(ctx, coll, "a", order{}); err != nil || item.Created {
		t.Error(item, err)
	}
}

// TestErrors: errors that no reply of lapse has.
func TestErrors(t *testing.T) {
	s := newStandin(t).serve()
	c := s.client()
	coll, ctx := s.collection(c), t.Context()
	s.answer("document.get.orders.gone", 404, `{"code":404,"error":"document_not_found","message":"no document \"gone\" in orders"}`)
	_, err := client.Get[order](ctx, coll, "gone")
	if coded, ok := errors.AsType[*client.Error](err); !ok || coded.Code != 404 || coded.Message != `no document "gone" in orders` || errors.Is(err, client.ErrCollectionNotFound) {
		t.Errorf("gone: %#v", err)
	}
	s.answer("document.get.orders.silent", 0, "")
	silent := s.client(client.WithTimeout(100 * time.Millisecond))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for name, test := range map[string]struct {
		do func() error
		is []error
	}{
		"silent":         {func() error { _, err := silent.Do(ctx, "document.get", "orders", "silent", nil); return err }, []error{client.ErrTimeout, context.DeadlineExceeded}},
		"cancelled":      {func() error { _, err := client.Get[order](cancelled, coll, "a"); return err }, []error{context.Canceled}},
		"too large":      {func() error { _, err := client.Upsert(ctx, coll, "a", string(make([]byte, 2<<20))); return err }, []error{client.ErrTooLarge}},
		"not served":     {func() error { _, err := s.client(client.WithDatabase("other")).Status(ctx); return err }, []error{client.ErrUnavailable, nats.ErrNoResponders}},
		"database name":  {func() error { _, err := client.New(s.nc, client.WithDatabase("Main")); return err }, []error{client.ErrBadRequest}},
		"no credentials": {func() error { _, err := client.Connect(s.server.ClientURL()); return err }, []error{client.ErrUnavailable, nats.ErrAuthorization}},
	} {
		err := test.do()
		for _, is := range test.is {
			if !errors.Is(err, is) {
				t.Errorf("%s: %v is no %v", name, err, is)
			}
		}
	}
	if _, err := client.Connect("nats://u:secret@127.0.0.1:1"); !errors.Is(err, client.ErrUnavailable) ||
		err.Error() != "no NATS server answers at nats://u:xxxxx@127.0.0.1:1: start `lapse serve`, or connect to another address" {
		t.Errorf("no server: %v", err)
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
			must(t)(c.Status(t.Context()))
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
	check(t, err)
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
		check(t, err)
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
