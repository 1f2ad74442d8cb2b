package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
)

// TestWriteOptions: what Go's options send beyond what the vectors say of all clients.
func TestWriteOptions(t *testing.T) {
	s := newStandin(t).serve()
	coll, ctx := s.collection(s.client()), t.Context()
	s.answer("document.upsert.orders.a", 200, `{"id":"a","_ts":2,"_etag":"3"}`)
	s.answer("batch.orders", 200, `{"results":[{"code":200},{"code":200},{"code":200}]}`)
	minute, at := client.TTL(time.Minute), client.ExpireAt(time.Unix(1_800_000_000, 1))
	upsert := func(value any, opts ...client.WriteOption) func() error {
		return func() error { _, err := client.Upsert(ctx, coll, "a", value, opts...); return err }
	}
	for _, test := range []struct {
		do       func() error
		sent     string
		expireAt string
	}{
		{upsert(order{TTL: 7}, minute, client.NeverExpire), `{"total":0,"ttl":-1}`, ""}, // the last one counts
		{upsert(5, minute), `5`, ""},
		{upsert(order{}, at), `{"total":0}`, "1800000001"},
		{func() error {
			_, err := coll.Batch().Upsert("a", order{}, at).Patch("b", order{}, client.OnlyIfMatch("3"), minute).GetAndTouch("c", client.MinAge(time.Second)).Run(ctx)
			return err
		}, `{"operations":[{"op":"upsert","id":"a","body":{"total":0},"expireAt":1800000001},{"op":"patch","id":"b","body":{"total":0,"ttl":60},"ifMatch":"3"},{"op":"touch","id":"c","body":{"content":true,"minAge":1}}],"atomic":false}`, ""},
	} {
		check(t, test.do())
		if m := s.last(); string(m.Data) != test.sent || m.Header.Get("Lapse-Expire-At") != test.expireAt {
			t.Errorf("sent %v %s, want %s", m.Header, m.Data, test.sent)
		}
	}
}

// TestRefusedOptions: an option that cannot be is refused, and nothing is sent.
func TestRefusedOptions(t *testing.T) {
	s := newStandin(t).log().serve()
	c, ctx := s.client(), t.Context()
	coll := s.collection(c)
	refuse := func(what any, want, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", what, err, want)
		}
	}
	upsert := func(opts ...client.WriteOption) error {
		_, err := client.Upsert(ctx, coll, "a", order{}, opts...)
		return err
	}
	touch := func(opts ...client.WriteOption) error { _, err := client.Touch(ctx, coll, "a", opts...); return err }
	submit := func(op string, opts ...client.WriteOption) error {
		_, err := c.Submit(ctx, op, "orders", "a", nil, opts...)
		return err
	}
	run := func(b *client.Batch) error { _, err := b.Run(ctx); return err }
	create := func(opt client.PropertyOption) error { _, err := c.CreateCollection(ctx, "orders", opt); return err }
	forecast := func(opt client.ForecastOption) error { _, err := coll.Forecast(ctx, opt); return err }
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, 1500 * time.Millisecond, 1 << 31 * time.Second} {
		refuse(d, client.ErrBadTTL, upsert(client.TTL(d)))
		refuse(d, client.ErrBadTTL, submit("document.upsert", client.TTL(d)))
		refuse(d, client.ErrBadTTL, run(coll.Batch().Create("a", order{}, client.TTL(d))))
		refuse(d, client.ErrBadTTL, create(client.DefaultTTL(d)))
		refuse(d, client.ErrBadRequest, touch(client.MinAge(d)))
		refuse(d, client.ErrBadRequest, submit("document.touch", client.MinAge(d)))
		if d != 0 {
			refuse(d, client.ErrBadTTL, create(client.WarnBefore(d)))
		}
		refuse(d, client.ErrBadRequest, forecast(client.Within(d)))
		refuse(d, client.ErrBadRequest, forecast(client.InBuckets(d)))
		refuse(d, client.ErrBadTTL, forecast(client.WhatIf(client.DefaultTTL(d))))
	}
	refuse("MinAge of a write", client.ErrBadRequest, upsert(client.MinAge(time.Minute)))
	refuse("MinAge of an upsert in a batch", client.ErrBadRequest, run(coll.Batch().Upsert("a", order{}, client.MinAge(time.Minute))))
	refuse("TTL of a touch", client.ErrBadRequest, touch(client.TTL(time.Minute)))
	refuse("a batch of what is no JSON", client.ErrBadRequest, run(coll.Batch().Create("a", func() {})))
	refuse("a write of what is no JSON", client.ErrBadRequest, func() error { _, err := client.Upsert(ctx, coll, "a", make(chan int)); return err }())
	for name, opt := range map[string]client.HandleOption{
		"no workers": client.Workers(0), "too many workers": client.Workers(client.MaxWorkers + 1), "no tries": client.Poison(0, func(context.Context, *client.Event, error) error { return nil }),
		"no handler": client.Poison(1, nil), "short ack wait": client.AckWait(time.Millisecond), "long ack wait": client.AckWait(2 * time.Hour), "no name": client.Durable(""),
	} {
		refuse(name, client.ErrBadRequest, c.Handle(ctx, nil, opt, client.UntilNow()))
	}
	if m := s.last(); m.Subject != "lapse.main.api.collection.get.orders" {
		t.Errorf("%s was sent", m.Subject)
	}
	if seq, err := c.Submit(ctx, "document.delete", "orders", "a", nil); seq != 1 || err != nil {
		t.Errorf("mutation %d follows those refused, %v", seq, err)
	}
}
