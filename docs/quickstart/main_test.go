package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/lapsetest/bubble"
)

// TestStartedAgain: the program runs twice. It passes over expiries of other collections,
// and over a document that is no order, which also ends while the program is down.
func TestStartedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		ctx, c := t.Context(), s.Client(t)
		start := func() []string {
			t.Helper()
			var out strings.Builder
			life, end := context.WithTimeout(ctx, 10*time.Second)
			defer end()
			if err := run(life, c, &out); life.Err() == nil {
				t.Error(err)
			}
			return strings.Split(strings.TrimSpace(out.String()), "\n")
		}
		expire := func(collection, id string, document any) {
			t.Helper()
			coll, err := c.OpenCollection(ctx, collection, client.TTLPerDocument())
			if err == nil {
				_, err = client.Upsert(ctx, coll, id, document, client.TTL(time.Second))
			}
			if err != nil {
				t.Error(err)
			}
		}
		foreign := time.AfterFunc(3*time.Second, func() {
			expire("visits", "v1", map[string]string{"user": "ann"})
			expire("orders", "odd", map[string]string{"total": "five"})
		})
		defer foreign.Stop()
		if got := start(); !slices.Equal(got, []string{"SO10 has version 3", "SO10 has expired with total 5"}) {
			t.Errorf("the first start prints %q", got)
		}
		expire("orders", "odd", map[string]string{"total": "five"})
		expire("orders", "SO11", Order{Customer: "C2", Total: 7})
		time.Sleep(2 * time.Second)
		if got := start(); len(got) != 3 || got[1] != "SO11 has expired with total 7" || got[2] != "SO10 has expired with total 5" {
			t.Errorf("the second start prints %q", got)
		}
	})
}
