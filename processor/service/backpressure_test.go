package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// TestReadAheadLimited: a connection waits while it is too far ahead of handle; messages of
// other subscriptions do not count.
func TestReadAheadLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reading{nc: &nats.Conn{}}
		waited := func() time.Duration {
			began := time.Now()
			r.wait()
			return time.Since(began)
		}
		r.nc.InMsgs = aheadMessages
		if d := waited(); d != 0 {
			t.Errorf("it waited %s for what it may read ahead", d)
		}
		// Ten over the limit, handled one after another.
		r.nc.InMsgs += 10
		go func() {
			for range 20 {
				time.Sleep(700 * time.Microsecond)
				r.took(0)
			}
		}()
		if d := waited(); d < 7*time.Millisecond || d > 9*time.Millisecond {
			t.Errorf("it waited %s for ten messages to be handled", d)
		}
		time.Sleep(time.Second)
		// The rest is for other subscriptions: nobody handles it.
		r.nc.InMsgs += 10 * aheadMessages
		r.nc.InBytes += 10 * aheadBytes
		if d := waited(); d != time.Millisecond {
			t.Errorf("it waited %s for nothing", d)
		}
		r.nc.InMsgs += aheadMessages
		r.nc.InBytes += aheadBytes
		if d := waited(); d != 0 {
			t.Errorf("it waited %s after that", d)
		}
		r.nc.InBytes++
		go func() { time.Sleep(time.Microsecond); r.took(1) }()
		if d := waited(); d != time.Millisecond {
			t.Errorf("it waited %s for a byte", d)
		}
		// Messages counted as other are handled after all: fewer remain than were
		// attributed to other subscriptions.
		r.took(aheadBytes)
		for range 5 * aheadMessages {
			r.took(0)
		}
		if d := waited(); d != 0 {
			t.Errorf("it waited %s after more messages were handled than had arrived", d)
		}
		// More is handled than had arrived when the counters were read.
		r.took(2 * int(r.nc.InBytes))
		if d := waited(); d != 0 {
			t.Errorf("it waited %s for less than nothing", d)
		}
	})
}
