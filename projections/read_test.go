package projections

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := openIn(t, vfs.NewMem()), &logbook{now: 1000}
		defer s.Close()
		l.collection(schema.CollectionCreated, "orders", `{}`)
		catchUp(t, s, l)
		if err := s.Wait(t.Context(), 1); err != nil {
			t.Errorf("what is folded is waited for: %v", err)
		}
		done := make(chan error, 2)
		for _, seq := range []uint64{2, 3} {
			go func() { done <- s.Wait(t.Context(), seq) }()
		}
		given := make(chan error, 1)
		ctx, giveUp := context.WithCancel(t.Context())
		go func() { given <- s.Wait(ctx, 3) }()
		synctest.Wait()

		l.created("orders", "a", `{"id":"a"}`)
		catchUp(t, s, l)
		synctest.Wait()
		if len(done) != 1 || len(given) != 0 {
			t.Fatalf("%d and %d returned at sequence 2", len(done), len(given))
		}
		giveUp()
		synctest.Wait()
		if len(given) != 1 || !errors.Is(<-given, context.Canceled) {
			t.Error("who gave up did not return, or not with its context's error")
		}
		l.created("orders", "b", `{"id":"b"}`)
		catchUp(t, s, l)
		synctest.Wait()
		if len(done) != 2 || <-done != nil || <-done != nil {
			t.Error("not both returned at sequence 3")
		}
	})
}
