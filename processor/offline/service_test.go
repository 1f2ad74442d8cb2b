package offline_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/test/stress"
)

// pair is a Local and a processor behind NATS that are asked the same.
type pair struct {
	*processortest.Wire
	local  *offline.Local
	random *rand.Rand
	last   bool // a reply to a write comes after what the write made due
}

func newPair(w *processortest.Wire, now int64) *pair {
	local, err := offline.NewLocal(now)
	w.Check(err)
	_, err = local.Adopt(now, w.Everything()) // a WriterStarted
	w.Check(err)
	return &pair{Wire: w, local: local, random: stress.Rand(w.T)}
}

// ask asks both, and fails the test where their replies differ. before is called before a
// mutation by message, of which JetStream swallows a repeat for 100 ms.
func (p *pair) ask(before func()) {
	p.T.Helper()
	r := drawRequest(p.random)
	if r.submit {
		before()
		p.Judged(p.Publish(r.tail, r.body, r.headers...))
		_, err := p.local.Submit(r.tail, r.header(), []byte(r.body))
		p.Check(err)
		if log := p.local.Log(); p.last { // what the mutation makes due comes before the next one, not before a read
			p.Check(p.Inside().Store.Wait(p.Ctx(), log[len(log)-1].Seq))
		}
		return
	}
	want := p.Ask(r.tail, r.body, r.headers...)
	o, err := p.local.Request(r.tail, r.header(), []byte(r.body))
	p.Check(err)
	got := processortest.Reply{Code: o.Code, Seq: o.Seq, Body: o.Body}
	if log := p.local.Log(); p.last {
		got.Seq = log[len(log)-1].Seq
	}
	if o.Fault != nil {
		got.Error, got.Message, got.Body = o.Fault.Name, o.Fault.Message, nil
		want.Body = nil
	}
	if plain(got) != plain(want) {
		p.T.Fatalf("%+v at %d\nlocal:   %d %s\nservice: %d %s", r, p.local.Now(), got.Seq, got, want.Seq, want)
	}
}

// sameLog fails the test unless both have the same log and state.
func (p *pair) sameLog() {
	p.T.Helper()
	if got, want := lines(p.local.Log()), lines(p.Everything()); got != want {
		p.T.Fatalf("local:\n%s\nservice:\n%s", got, want)
	}
	if got, want := p.local.Digest(), p.Inside().Store.Digest().String(); got != want {
		p.T.Fatalf("digest %s, of the service %s", got, want)
	}
}

// TestLocalIsTheService: a Local and a processor behind NATS, asked the same at the same
// times, give the same replies and the same log.
func TestLocalIsTheService(t *testing.T) {
	for range stress.Pick(2, 40) {
		processortest.Bubble(t, func(w *processortest.Wire) {
			p := newPair(w, time.Now().UnixMilli())
			defer func() { w.Check(p.local.Close()) }()
			wait := func(d time.Duration) {
				time.Sleep(d)
				synctest.Wait() // all due work is done
				w.Check(p.local.Advance(time.Now().UnixMilli()))
			}
			for range stress.Pick(400, 4000) {
				wait(time.Duration(draw(p.random, 0, 0, 0, 1, 250, 999, 1000, 3000, 40_000, 200_000)) * time.Millisecond)
				p.ask(func() { wait(100 * time.Millisecond) })
			}
			wait(0)
			p.sameLog()
		})
	}
}

// TestMovesAreSimulated: a processor with a manual clock, asked and moved as a Local, gives
// the same replies and the same log: each event has the time at which it was due, and what a
// write makes due comes before its reply.
func TestMovesAreSimulated(t *testing.T) {
	for range stress.Pick(2, 40) {
		began := time.Date(2011, 11, 11, 11, 11, 11, 110e6, time.UTC)
		keeper := clock.NewManual(began, false)
		processortest.Bubble(t, func(w *processortest.Wire) {
			p := newPair(w, began.UnixMilli())
			p.last = true
			defer func() { w.Check(p.local.Close()) }()
			for range stress.Pick(400, 4000) {
				switch by := draw(p.random, 0, 0, 0, 0, 0, -1, 1000, 3000, 29_000, 40_000, 500_000_000_000); {
				case by > 0:
					p.advance(keeper, &writer.Move{To: keeper.Millis() + int64(by)})
				case by < 0:
					p.advance(keeper, &writer.Move{Due: true})
				}
				p.ask(func() { time.Sleep(100 * time.Millisecond) })
			}
			p.sameLog()
		}, func(o *processor.Options) { o.Timekeeper = keeper })
	}
}

// advance moves the clocks of both.
func (p *pair) advance(keeper *clock.Timekeeper, move *writer.Move) {
	p.T.Helper()
	before, began := len(p.local.Log()), keeper.Millis()
	seq, err := p.Processor.Advance(p.Ctx(), move)
	p.Check(err)
	p.Check(p.local.Advance(move.To))
	if now := keeper.Millis(); now != move.To {
		p.T.Fatalf("the clock shows %d, want %d", now, move.To)
	}
	if s := p.Status(); move.Due && move.Events == 0 && (move.To != began || s.PendingExpiry > 0) {
		p.T.Fatalf("nothing was due, the clock went on by %d ms, and the status is %+v", move.To-began, s)
	}
	if more := len(p.local.Log()) - before; move.Events != more || seq != p.End() {
		p.T.Fatalf("a move brought %d events up to %d, want %d up to %d", move.Events, seq, more, p.End())
	}
}
