package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
)

func TestTTL(t *testing.T) {
	s := newStandin(t).log().serve()
	c := s.client()
	coll := s.collection(c)
	ctx := t.Context()
	for _, op := range []string{"create", "upsert", "replace", "patch"} {
		s.answer("document."+op+".orders.a", 200, `{"id":"a","_ts":2,"_etag":"3"}`)
	}
	minute, own := client.TTL(time.Minute), order{Total: 5, TTL: 7}
	for _, test := range []struct {
		name  string
		write func() error
		want  string
	}{
		{"create", func() error { _, err := client.Create(ctx, coll, "a", order{Total: 5}, minute); return err }, `{"total":5,"ttl":60}`},
		{"upsert over a ttl", func() error { _, err := client.Upsert(ctx, coll, "a", own, client.IfMatch("3"), minute); return err }, `{"total":5,"ttl":60}`},
		{"replace", func() error { _, err := client.Replace(ctx, coll, "a", own, client.NeverExpire); return err }, `{"total":5,"ttl":-1}`},
		{"patch", func() error { _, err := client.Patch[order](ctx, coll, "a", map[string]any{}, minute); return err }, `{"ttl":60}`},
		{"no option", func() error { _, err := client.Upsert(ctx, coll, "a", own); return err }, `{"total":5,"ttl":7}`},
		{"the last one counts", func() error { _, err := client.Upsert(ctx, coll, "a", own, minute, client.NeverExpire); return err }, `{"total":5,"ttl":-1}`},
		{"not an object", func() error { _, err := client.Upsert[any](ctx, coll, "a", 5, minute); return err }, `5`},
	} {
		if err := test.write(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := string(s.last().Data); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}

	s.answer("batch.orders", 200, `{"results":[{"code":201},{"code":200}]}`)
	batch := coll.Batch().Create("a", own, client.NeverExpire).Patch("b", order{}, client.OnlyIfMatch("3"), minute)
	if _, err := batch.Run(ctx); err != nil {
		t.Error(err)
	}
	const want = `{"operations":[{"op":"create","id":"a","body":{"total":5,"ttl":-1}},{"op":"patch","id":"b","body":{"total":0,"ttl":60},"ifMatch":"3"}],"atomic":false}`
	if got := string(s.last().Data); got != want {
		t.Errorf("batch: got %s, want %s", got, want)
	}

	if _, err := c.Submit(ctx, "document.upsert", "orders", "a", own, minute); err != nil {
		t.Error(err)
	}
	stream, err := s.js.Stream(ctx, "LAPSE_main_MUTATIONS")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.GetLastMsgForSubject(ctx, "lapse.main.mutations.document.upsert.orders.a"); err != nil || string(m.Data) != `{"total":5,"ttl":60}` {
		t.Errorf("submitted %+v, %v", m, err)
	}
}

func TestBadTTL(t *testing.T) {
	s := newStandin(t).log().serve()
	c := s.client()
	coll := s.collection(c)
	asked := len(s.requests)
	for _, d := range []time.Duration{0, -time.Second, time.Millisecond, 1500 * time.Millisecond, 1 << 31 * time.Second} {
		_, written := client.Upsert(t.Context(), coll, "a", order{}, client.TTL(d))
		_, submitted := c.Submit(t.Context(), "document.upsert", "orders", "a", order{}, client.TTL(d))
		_, batched := coll.Batch().Create("a", order{}, client.TTL(d)).Run(t.Context())
		for _, err := range []error{written, submitted, batched} {
			if !errors.Is(err, client.ErrBadTTL) {
				t.Errorf("%v: %v", d, err)
			}
		}
	}
	stream, err := s.js.Stream(t.Context(), "LAPSE_main_MUTATIONS")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.GetMsg(t.Context(), 1); !errors.Is(err, jetstream.ErrMsgNotFound) || len(s.requests) != asked {
		t.Errorf("a refused write was sent: %v", err)
	}
}
