// Package run runs the Go blocks of the manual. TestGoBlocks of package docs makes a
// package of each block: feed2 is the second one of docs/feed.md.
package run

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/docs/testdata/run/deploy1"
	"github.com/lapsedb/lapse/docs/testdata/run/feed1"
	"github.com/lapsedb/lapse/docs/testdata/run/feed2"
	"github.com/lapsedb/lapse/docs/testdata/run/stage"
	"github.com/lapsedb/lapse/docs/testdata/run/testing1"
	"github.com/lapsedb/lapse/docs/testdata/run/testing2"
	"github.com/lapsedb/lapse/lapsetest/bubble"
)

func TestTesting1(t *testing.T) { testing1.TestSession(t) }
func TestTesting2(t *testing.T) { testing2.TestExpiry(t) }

func TestDeploy1(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	if err := deploy1.Serve(ctx, func(string) { stop() }); err != nil || ctx.Err() == nil {
		t.Error(err, ctx.Err())
	}
}

func TestFeed1(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		c := s.Client(t)
		coll := orders(t, c)
		got := stage.Run(c, "SO1", func() {
			// The durable begins at its first use, so write once it is there.
			expire := time.AfterFunc(time.Second, func() { expire(t, coll) })
			defer expire.Stop()
			t.Error(feed1.Follow(t.Context(), c))
		})
		prints(t, got, "SO1 2000-01-01 00:00:02 +0000 UTC map[id:SO1 total:5 ttl:1]")
	})
}

func TestFeed2(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		c := s.Client(t)
		coll := orders(t, c)
		refused, done, tries := errors.New("refused"), errors.New("done"), 0
		send := func(context.Context, *client.Event) error { tries++; return refused }
		putAside := func(_ context.Context, e *client.Event, err error) error {
			if e.ID != "SO1" || err != refused {
				t.Errorf("put aside: %+v, %v", e, err)
			}
			return done
		}
		expire := time.AfterFunc(time.Second, func() { expire(t, coll) })
		defer expire.Stop()
		if err := feed2.Handle(t.Context(), c, send, putAside); err != done || tries != 5 {
			t.Errorf("%v after %d deliveries", err, tries)
		}
	})
}

// orders creates the collection of quickstart.
func orders(t *testing.T, c *client.Client) *client.Collection {
	t.Helper()
	coll, err := c.CreateCollection(t.Context(), "orders", client.TTLPerDocument())
	if err != nil {
		t.Fatal(err)
	}
	return coll
}

// expire writes an order that expires soon.
func expire(t *testing.T, orders *client.Collection) {
	if _, err := client.Upsert(t.Context(), orders, "SO1", map[string]int{"total": 5}, client.TTL(time.Second)); err != nil {
		t.Error(err)
	}
}

func prints(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("it prints %q, want %q", got, want)
	}
}
