package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// TestReadingAhead: a connection waits while much of what it read is not taken,
// and not for what others took.
func TestReadingAhead(t *testing.T) {
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
		// Ten too many, taken by and by.
		r.nc.InMsgs += 10
		go func() {
			for range 20 {
				time.Sleep(700 * time.Microsecond)
				r.took(0)
			}
		}()
		if d := waited(); d < 7*time.Millisecond || d > 9*time.Millisecond {
			t.Errorf("it waited %s for ten messages to be taken", d)
		}
		time.Sleep(time.Second)
		// The rest went elsewhere, as what nobody takes shows.
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
		// What nobody took for a while is taken after all: less is left then than
		// was thought to be for others.
		r.took(aheadBytes)
		for range 5 * aheadMessages {
			r.took(0)
		}
		if d := waited(); d != 0 {
			t.Errorf("it waited %s after more was taken than was there to be", d)
		}
		// More is taken than had come when that was looked at.
		r.took(2 * int(r.nc.InBytes))
		if d := waited(); d != 0 {
			t.Errorf("it waited %s for less than nothing", d)
		}
	})
}
