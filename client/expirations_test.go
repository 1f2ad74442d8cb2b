package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
)

func TestExpirations(t *testing.T) {
	s := newStandin(t).log()
	s.created("orders", "a")
	s.expired("orders", "a", `{"id":"a","total":5}`)
	s.expired("orders", "b", `{"id":"b","total":"five"}`)
	s.expired("orders", "c", "")

	var got []client.Expiration[order]
	var errs []error
	for x, err := range client.Expirations[order](t.Context(), s.client(), client.FromStart(), client.UntilNow()) {
		got, errs = append(got, x), append(errs, err)
	}
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	if x := got[0]; errs[0] != nil || !x.HasValue || x.Value.Total != 5 || x.ID != "a" || x.Deadline.Unix() != 100 {
		t.Errorf("a: %+v, %v", x, errs[0])
	}
	if x := got[1]; !decoding(errs[1], "b") || x.ID != "b" {
		t.Errorf("b: %+v, %v", x, errs[1])
	}
	if x := got[2]; errs[2] != nil || x.HasValue || x.ID != "c" {
		t.Errorf("c: %+v, %v", x, errs[2])
	}
}

// decoding reports whether err is a DecodeError about a document.
func decoding(err error, id string) bool {
	failed, ok := errors.AsType[*client.DecodeError](err)
	return ok && failed.ID == id && failed.Seq != 0
}

func TestSubmit(t *testing.T) {
	s := newStandin(t)
	c := s.client()
	if _, err := c.Submit(t.Context(), "document.upsert", "orders", "a", order{}); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("no stream accepts it: %v", err)
	}
	s.log()
	seq, err := c.Submit(t.Context(), "document.upsert", "orders", "a b", order{Total: 5}, client.MsgID("1"), client.TTL(time.Minute))
	if err != nil || seq != 1 {
		t.Fatalf("%d, %v", seq, err)
	}
	stream, err := s.js.Stream(t.Context(), "LAPSE_main_MUTATIONS")
	check(t, err)
	m, err := stream.GetMsg(t.Context(), 1)
	if err != nil || m.Subject != "lapse.main.mutations.document.upsert.orders.a%20b" || string(m.Data) != `{"total":5,"ttl":60}` || m.Header.Get("Nats-Msg-Id") != "1" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := c.Submit(t.Context(), "document.get", "orders", "a", nil); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("not a change: %v", err)
	}
}
