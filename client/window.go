package client

import (
	"cmp"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// window holds the messages of a durable's consumer that this reader has received and not
// yet acknowledged. It decides which of them to hand out. It has no connection, clock or
// lock; clients in other languages follow the same rule.
//
// The server pins one reader, numbers the deliveries of the consumer, and repeats the
// delivery of a message that is not acknowledged within the ack wait. A message can be
// missing here although a later one has arrived: a reader that crashed or lost its pin
// still has it, or its delivery was lost between two servers, in a cut too short for
// either end to notice. So, for the order of the log:
//
//  1. A delivery with another pin ID, or whose number does not follow the last one,
//     unsettles the window.
//  2. A settled window hands out its first message.
//  3. An unsettled window hands out its first message only if that is the first one that
//     the consumer has delivered and not seen acknowledged.
//  4. The window is settled when the consumer has no more unacknowledged messages than
//     this reader has received with its present pin ID: then none is missing.
//
// The missing messages come after their ack wait, and a message whose acknowledgement was
// lost comes again: a repeat, which its sequence tells.
//
// A message is received (ready and unacked), handed out (unacked), then acknowledged or
// returned, after which the window has forgotten it. Its owner calls these methods under a
// lock of its own. It may ask for the state of the consumer (inquire) without the lock and
// go on to receive: settle compares by what was true when it asked, and refuses if a
// delivery has unsettled the window since, or if it has another first message.
//
// Why it is safe: rule 2 holds since in a settled window every message that the consumer has
// delivered and not seen acknowledged is here, so the first one is the oldest. Rule 3 holds
// since the consumer's floor says that nothing before the first one is unacknowledged. In
// both cases a message before it could only be one that the consumer has not delivered yet,
// and the consumer delivers in the order of the log.
type window struct {
	pinned  bool                // false for a consumer of an earlier release, which allows one message in flight
	ready   []delivery          // received and not yet handed out, in order
	unacked map[uint64]delivery // received and neither acknowledged nor returned, by sequence
	bytes   int                 // of unacked
	acks    int                 // messages removed from unacked
	parked  int                 // of unacked, that wait for a failing handler in this process

	pin     string // pin ID of the last delivery
	number  uint64 // of the last delivery
	settled bool
	gaps    int  // times that a delivery unsettled the window
	missing bool // a message that precedes ready is known to be missing
}

func newWindow(pinned bool) window {
	return window{pinned: pinned, settled: !pinned, unacked: make(map[uint64]delivery)}
}

// add adds a message. A redelivery replaces the earlier delivery.
func (w *window) add(m delivery) {
	if w.pinned && (m.pin != w.pin || m.number != w.number+1) {
		w.settled = false
		w.gaps++
	}
	w.pin, w.number, w.missing = m.pin, m.number, false
	earlier, again := w.unacked[m.seq]
	w.unacked[m.seq] = m
	w.bytes += len(m.data) - len(earlier.data)
	i, waits := slices.BinarySearchFunc(w.ready, m.seq, func(m delivery, seq uint64) int { return cmp.Compare(m.seq, seq) })
	if waits {
		w.ready[i] = m
	} else if !again {
		w.ready = slices.Insert(w.ready, i, m)
	}
}

// take returns the first message if the window is settled.
func (w *window) take() (m delivery, ok bool) {
	if !w.settled || len(w.ready) == 0 {
		return delivery{}, false
	}
	m, w.ready = w.ready[0], w.ready[1:]
	return m, true
}

// inquiry is what the state of the consumer is compared with, which is requested after it.
type inquiry struct {
	first delivery // the first message of the window
	own   int      // unacknowledged messages that were received with the present pin ID
	acks  int
	gaps  int
}

// inquire begins a comparison with the state of the consumer. The window is not empty.
func (w *window) inquire() inquiry {
	q := inquiry{first: w.ready[0], acks: w.acks, gaps: w.gaps}
	for _, m := range w.unacked {
		if m.pin == w.pin { // another reader may have acknowledged the others
			q.own++
		}
	}
	return q
}

// follows reports whether the first message follows the acknowledged ones by its numbers.
// If not, the events between them may be such that the consumer does not choose.
func (q inquiry) follows(floor jetstream.SequenceInfo) bool {
	return q.first.seq == floor.Stream+1 || q.first.times == 1 && q.first.number == floor.Consumer+1
}

// settle ends a comparison: isFirst is whether no message before the first one is
// unacknowledged, pending the number of unacknowledged messages of the consumer. It
// returns the first message if it may be handed out.
func (w *window) settle(q inquiry, isFirst bool, pending int) (m delivery, ok bool) {
	if q.gaps != w.gaps || len(w.ready) == 0 || w.ready[0].seq != q.first.seq {
		return delivery{}, false // the window has changed since
	}
	w.settled = pending <= q.own-(w.acks-q.acks)
	if w.missing = !w.settled && !isFirst; w.missing {
		return delivery{}, false
	}
	m, w.ready = w.ready[0], w.ready[1:]
	return m, true
}

// remove removes a message that is acknowledged.
func (w *window) remove(seq uint64) {
	if m, ok := w.unacked[seq]; ok {
		delete(w.unacked, seq)
		w.bytes -= len(m.data)
		w.acks++
	}
}

// drop removes the messages that were not handed out: the server may have given them to
// another reader.
func (w *window) drop() {
	for _, m := range w.ready {
		w.remove(m.seq)
	}
	w.ready, w.settled, w.missing = nil, !w.pinned, false
	w.gaps++
}

// nextGroup returns the size of the pull after one of size messages, which has brought
// received ones with so many bytes. It grows from one message while nothing is redelivered.
func (w *window) nextGroup(size, received, bytes int, redelivered bool) int {
	switch {
	case !w.pinned || redelivered:
		return 1
	case received == 0:
		return size
	case received == size:
		size = min(2*size, maxGroup)
	}
	// NATS loses messages of a replicated consumer whose pull has max_bytes: its status
	// overtakes them.
	return max(1, min(size, pullBytes/(1+bytes/received)))
}

// hasSpace reports whether to pull size more messages. A missing message that precedes
// the others needs no space, and parked ones take none: the server limits them.
func (w *window) hasSpace(size int) bool {
	return w.missing || len(w.unacked)-w.parked <= size/2 && w.bytes < pullBytes
}
