package service

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// nats.go reads a connection as fast as it can and queues without a limit what the handlers
// have not taken. A flood of requests would fill the memory of lapse, though the server has
// limits for that. So on the embedded server the connection waits before it reads when too
// much is ahead of handle: requests then stay in the server, which holds back their senders
// and disconnects the worst (embedded/watch.go). Over a socket pendingBytes bounds the
// queue.
//
// Counting needs care: nats.go counts all messages of the connection, handle only requests.
// What is not requests ($SRV, replies) is found out when nothing else explains that handle
// has nothing to do.

const (
	// aheadMessages and aheadBytes limit what nats.go may read from the connection ahead
	// of handle. The rest waits in the NATS server, which slows its senders down.
	aheadMessages = 8192
	aheadBytes    = 32 << 20
	// pendingBytes exceeds what can be read ahead: beyond it nats.go would drop requests
	// silently.
	pendingBytes = 512 << 20
)

// reading counts how far a connection has read ahead of handle.
type reading struct {
	nc       *nats.Conn
	messages atomic.Uint64 // handled
	bytes    atomic.Uint64
	// Messages and bytes of other subscriptions ($SRV.>), and bytes of headers.
	otherMessages, otherBytes atomic.Int64
}

func (r *reading) took(bytes int) {
	r.bytes.Add(uint64(bytes))
	r.messages.Add(1)
}

// throttled is a connection that can call wait before each read.
type throttled interface{ Throttle(wait func()) }

// throttle limits how far the connection reads ahead.
func (r *reading) throttle(nc *nats.Conn) {
	r.nc = nc
	if conn, ok := nc.Opts.InProcessServer.(throttled); ok {
		conn.Throttle(r.wait)
	}
}

// ahead returns how many received messages wait here, not counting others. If fewer than
// others remain, some of those were handled after all, and others is corrected.
func ahead(came, took uint64, others *atomic.Int64) int64 {
	waiting := max(0, int64(came-took)) // some may have been handled since came was read
	if others.Load() > waiting {
		others.Store(waiting)
	}
	return waiting - others.Load()
}

// wait waits until the connection is within the limits, which it normally is. It polls: it
// runs on the goroutine that reads, which has nothing else to do then.
func (r *reading) wait() {
	for {
		messages, bytes := atomic.LoadUint64(&r.nc.InMsgs), atomic.LoadUint64(&r.nc.InBytes)
		took := r.messages.Load()
		waiting, size := ahead(messages, took, &r.otherMessages), ahead(bytes, r.bytes.Load(), &r.otherBytes)
		if waiting <= aheadMessages && size <= aheadBytes {
			return
		}
		time.Sleep(time.Millisecond)
		if r.messages.Load() == took {
			// handle received no messages: all of them were for other subscriptions.
			r.otherMessages.Add(waiting)
			r.otherBytes.Add(size)
			return
		}
	}
}
