package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
)

// TestEnds: ExpireAt and KeepDeadline are headers, members in a batch, and rounded up;
// MinAge is a member of the body of a touch.
func TestEnds(t *testing.T) {
	s := newStandin(t).log().serve()
	c := s.client()
	coll := s.collection(c)
	ctx := t.Context()
	for _, op := range []string{"create", "upsert", "replace", "patch", "touch"} {
		s.answer("document."+op+".orders.a", 200, `{"id":"a","total":5,"_ts":2,"_etag":"3"}`)
	}
	s.answer("batch.orders", 200, `{"results":[{"code":200},{"code":200},{"code":200}]}`)
	at := client.ExpireAt(time.Unix(1_800_000_000, 1))
	for _, test := range []struct {
		name                 string
		do                   func() error
		expireAt, keep, sent string
	}{
		{"create", func() error { _, err := client.Create(ctx, coll, "a", order{}, at); return err }, "1800000001", "", `{"total":0}`},
		{"patch", func() error {
			_, err := client.Patch[order](ctx, coll, "a", order{}, client.ExpireAt(time.Unix(7, 0)))
			return err
		}, "7", "", `{"total":0}`},
		{"upsert", func() error { _, err := client.Upsert(ctx, coll, "a", order{}, client.KeepDeadline()); return err }, "", "true", `{"total":0}`},
		{"touch", func() error { _, err := client.Touch(ctx, coll, "a"); return err }, "", "", ``},
		{"touch by age", func() error {
			_, err := client.Touch(ctx, coll, "a", client.IfMatch("3"), client.MinAge(time.Minute))
			return err
		}, "", "", `{"minAge":60}`},
		{"get and touch", func() error {
			item, err := client.GetAndTouch[order](ctx, coll, "a", client.MinAge(time.Minute))
			if item.Value.Total != 5 || item.ETag != "3" {
				t.Errorf("got %+v", item)
			}
			return err
		}, "", "", `{"content":true,"minAge":60}`},
		{"batch", func() error {
			_, err := coll.Batch().Upsert("a", order{}, at).Patch("a", order{}, client.KeepDeadline()).GetAndTouch("a", client.MinAge(time.Second)).Run(ctx)
			return err
		}, "", "", `{"operations":[{"op":"upsert","id":"a","body":{"total":0},"expireAt":1800000001},{"op":"patch","id":"a","body":{"total":0},"keepDeadline":true},{"op":"touch","id":"a","body":{"content":true,"minAge":1}}],"atomic":false}`},
	} {
		if err := test.do(); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		m := s.last()
		if m.Header.Get("Lapse-Expire-At") != test.expireAt || m.Header.Get("Lapse-Keep-Deadline") != test.keep || string(m.Data) != test.sent {
			t.Errorf("%s: sent %v %s", test.name, m.Header, m.Data)
		}
	}
	for name, do := range map[string]func() error{
		"MinAge of a write": func() error { _, err := client.Upsert(ctx, coll, "a", order{}, client.MinAge(time.Minute)); return err },
		"MinAge with parts": func() error { _, err := client.Touch(ctx, coll, "a", client.MinAge(1500*time.Millisecond)); return err },
		"MinAge of zero":    func() error { _, err := client.Touch(ctx, coll, "a", client.MinAge(0)); return err },
		"TTL of a touch":    func() error { _, err := client.Touch(ctx, coll, "a", client.TTL(time.Minute)); return err },
		"MinAge of an upsert": func() error {
			_, err := coll.Batch().Upsert("a", order{}, client.MinAge(time.Minute)).Run(ctx)
			return err
		},
		"MinAge in a Submit": func() error {
			_, err := c.Submit(ctx, "document.touch", "orders", "a", nil, client.MinAge(0))
			return err
		},
	} {
		if err := do(); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
