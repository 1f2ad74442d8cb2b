package client

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/stress"
)

// TestWindowOrder: two readers take turns at a consumer of a log, while deliveries,
// acknowledgements and reports of progress are lost in cuts of any length, and readers
// crash, lose their pin, and handle several events at once. Each event is handed out, and
// for the first time after all events before it.
func TestWindowOrder(t *testing.T) {
	t.Parallel()
	const events = 60_001 // the filter chooses the last one
	r := rand.New(rand.NewPCG(stress.Seed(t), 0))
	m := &consumerModel{rand: r, pending: make(map[uint64]*pendingModel), next: 1, number: 1}
	readers := []*readerModel{newReaderModel(0), newReaderModel(1)}
	handed := make(map[uint64]bool)
	var last, repeats, lost uint64
	for last < events || len(m.pending) > 0 {
		m.now++
		m.end = min(events, m.end+uint64(r.IntN(3)))
		m.expire()
		for _, reader := range readers {
			m.disturb(reader)
			lost += m.pull(reader)
			for _, seq := range reader.step(m) {
				if handed[seq] {
					repeats++
				} else if seq <= last {
					t.Fatalf("event %d is handed out after %d", seq, last)
				}
				handed[seq], last = true, max(last, seq)
			}
		}
		if m.now > 10*events {
			t.Fatalf("no end: %d handed out, %d pending, %+v %+v %+v", last, len(m.pending), m.floor, readers[0].window.settled, readers[1].window.settled)
		}
	}
	for seq := uint64(1); seq <= events; seq++ {
		if chosen(seq) && !handed[seq] {
			t.Fatalf("event %d is never handed out", seq)
		}
	}
	if lost < 1000 || repeats < 100 {
		t.Errorf("%d deliveries lost, %d repeats: the faults are too few", lost, repeats)
	}
}

// chosen is the filter of the consumer.
func chosen(seq uint64) bool { return seq%5 != 0 }

const (
	ackWaitModel = 60
	everyModel   = ackWaitModel / 3
)

// consumerModel is a pull consumer of nats-server with one priority group. Times are
// steps.
type consumerModel struct {
	rand    *rand.Rand
	now     int
	end     uint64 // last event of the log
	next    uint64 // first event not delivered
	number  uint64 // of the next delivery
	pending map[uint64]*pendingModel
	again   []uint64 // to deliver again
	floor   jetstream.SequenceInfo

	reader, pins, pulled int // pinned reader, number of pins, last pull of the pinned reader
}

type pendingModel struct {
	number uint64 // of the first delivery
	times  uint64
	due    int
}

// readerModel is a reader with its connection.
type readerModel struct {
	id        int
	window    window
	running   map[uint64]int // events in handlers, and when they end
	cut       int            // end of a cut of the connection
	confirmed int
	inquiry   *inquiry
	answered  bool
	pendings  int
	isFirst   bool
}

func newReaderModel(id int) *readerModel {
	return &readerModel{id: id, window: newWindow(true), running: make(map[uint64]int)}
}

// disturb cuts the reader's connection, unpins or crashes it, at random.
func (m *consumerModel) disturb(r *readerModel) {
	switch m.rand.IntN(200) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		r.cut = m.now + 1 + m.rand.IntN(4)
	case 8:
		r.cut = m.now + m.rand.IntN(3*ackWaitModel)
	case 9:
		m.reader = m.rand.IntN(2)
		m.pins++
	case 10:
		*r = *newReaderModel(r.id)
	}
}

// expire ends ack waits, and the pin of a reader that does not pull.
func (m *consumerModel) expire() {
	for _, seq := range slices.Sorted(maps.Keys(m.pending)) {
		if m.pending[seq].due <= m.now && !slices.Contains(m.again, seq) {
			m.again = append(m.again, seq)
		}
	}
	if m.now-m.pulled > ackWaitModel {
		m.reader, m.pulled = 1-m.reader, m.now
		m.pins++
	}
}

// pull delivers a group to a reader, some of it in vain.
func (m *consumerModel) pull(r *readerModel) (lost uint64) {
	size := 1 + m.rand.IntN(60)
	if m.reader != r.id || m.now < r.cut || !r.window.hasSpace(size) {
		return 0
	}
	m.pulled = m.now
	for range size {
		var seq uint64
		if len(m.again) > 0 {
			seq, m.again = m.again[0], m.again[1:]
		} else {
			for m.next <= m.end && !chosen(m.next) {
				m.next++
			}
			if m.next > m.end || len(m.pending) >= 100 {
				return lost
			}
			seq = m.next
			m.next++
		}
		p := m.pending[seq]
		if p == nil {
			p = &pendingModel{number: m.number}
			m.pending[seq] = p
		}
		p.times++
		p.due = m.now + ackWaitModel
		d := delivery{seq: seq, number: m.number, times: p.times, pin: fmt.Sprint(m.pins), data: []byte("event")}
		m.number++
		if m.rand.IntN(300) == 0 { // a cut in the middle of a group
			r.cut = m.now + 1 + m.rand.IntN(4)
		}
		if m.now < r.cut {
			lost++
			continue
		}
		r.window.add(d)
	}
	return lost
}

// ack is the acknowledgement of nats-server's explicit policy.
func (m *consumerModel) ack(seq uint64) {
	p := m.pending[seq]
	if p == nil {
		return
	}
	delete(m.pending, seq)
	m.again = slices.DeleteFunc(m.again, func(s uint64) bool { return s == seq })
	if len(m.pending) == 0 {
		m.floor = jetstream.SequenceInfo{Consumer: m.number - 1, Stream: m.next - 1}
	} else if p.number == m.floor.Consumer+1 {
		first := slices.Min(slices.Collect(maps.Keys(m.pending)))
		m.floor = jetstream.SequenceInfo{Consumer: m.pending[first].number - 1, Stream: first - 1}
	}
}

// step ends handlers, reports progress, and hands out events.
func (r *readerModel) step(m *consumerModel) (handed []uint64) {
	connected := m.now >= r.cut
	for _, seq := range slices.Sorted(maps.Keys(r.running)) {
		if r.running[seq] <= m.now {
			delete(r.running, seq)
			r.window.remove(seq)
			if connected {
				m.ack(seq)
			}
		}
	}
	if m.now%everyModel == 0 && connected {
		r.confirmed = m.now
		for seq := range r.window.unacked {
			if p := m.pending[seq]; p != nil && !slices.Contains(m.again, seq) {
				p.due = m.now + ackWaitModel
			}
		}
	}
	if m.now-r.confirmed > 2*everyModel {
		r.window.drop()
		r.confirmed, r.inquiry = m.now, nil
	}
	for range 1 + m.rand.IntN(3) {
		d, ok := r.window.take()
		if !ok {
			d, ok = r.inquire(m, connected)
		}
		if !ok {
			break
		}
		r.running[d.seq] = m.now + m.rand.IntN(10)
		if m.rand.IntN(300) == 0 {
			r.running[d.seq] = m.now + 2*ackWaitModel
		}
		handed = append(handed, d.seq)
	}
	return handed
}

// inquire asks the consumer: the question, its answer, and its use may be steps apart.
func (r *readerModel) inquire(m *consumerModel, connected bool) (delivery, bool) {
	if r.inquiry == nil {
		if len(r.window.ready) == 0 || !connected {
			return delivery{}, false
		}
		q := r.window.inquire()
		r.inquiry, r.answered = &q, false
	}
	q := *r.inquiry
	if !r.answered && m.rand.IntN(2) == 0 {
		next := m.floor.Stream + 1
		for !chosen(next) {
			next++
		}
		r.answered, r.pendings, r.isFirst = true, len(m.pending), q.follows(m.floor) || next == q.first.seq
	}
	if !r.answered || m.rand.IntN(2) == 0 {
		return delivery{}, false
	}
	r.inquiry = nil
	return r.window.settle(q, r.isFirst, r.pendings)
}

// TestDurableGoesOnAfterStall: a reader of a durable without contact to the server for
// long drops its messages and pulls again.
func TestDurableGoesOnAfterStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := delivery{seq: 1}
		d := &durable{
			every: time.Second, wake: make(chan struct{}, 1), space: make(chan struct{}, 1),
			window: newWindow(true), confirmed: time.Now(),
		}
		d.window.add(one)
		pulls := false
		go func() { pulls = d.waitForSpace(t.Context(), 1) }()
		time.Sleep(2*d.every + time.Millisecond)
		go func() { _, _ = d.next(t.Context()) }()
		synctest.Wait()
		if !pulls {
			t.Error("it waits for space, and has no message")
		}
	})
}
