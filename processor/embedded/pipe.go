package embedded

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// lapse sends thousands of small messages a second to a server in the same process.
// net.Pipe has no buffer, so each write would wait for the server to be scheduled and to
// parse. bufferedConn puts a buffer of 1 MiB in between: a write appends to it, a goroutine
// hands over what has gathered. A write blocks only when that much is unsent, so memory
// stays bounded and a slow server still slows its writers down.
//
// The other direction is the server's own pipe. Before each read a connection may be made
// to wait (Throttle): what it does not read stays in the server, whose limits then hold
// back the senders (service/backpressure.go).

// inProcess connects to the server without the kernel. The server's own in-process
// connections are pipes without a buffer: a publisher waits until the server has read
// and parsed its message. These have a buffer for writes to the server.
type inProcess struct {
	*server.Server
	wait atomic.Pointer[func()]
}

// InProcessConn implements nats.InProcessConnProvider.
func (s *inProcess) InProcessConn() (net.Conn, error) {
	c, err := s.Server.InProcessConn()
	if err != nil {
		return nil, err
	}
	b := newBufferedConn(c)
	b.wait = &s.wait
	return b, nil
}

// Throttle makes the connection call wait before each read. If messages are not read,
// the server makes their senders wait.
func (s *inProcess) Throttle(wait func()) { s.wait.Store(&wait) }

// maxBuffered is the number of unsent bytes beyond which a write blocks.
const maxBuffered = 1 << 20

// bufferedConn is a connection whose writes return before they are read. mu guards waiting,
// closed and err; changed is signalled when any of them changes. Bytes keep their order:
// one goroutine forwards them, and swaps buffers instead of copying.
type bufferedConn struct {
	net.Conn
	wait *atomic.Pointer[func()] // before each read

	mu      sync.Mutex
	changed sync.Cond
	waiting []byte
	closed  bool
	err     error // of an earlier write
}

func newBufferedConn(c net.Conn) *bufferedConn {
	b := &bufferedConn{Conn: c, wait: new(atomic.Pointer[func()])}
	b.changed.L = &b.mu
	go b.forward()
	return b
}

func (b *bufferedConn) Read(p []byte) (int, error) {
	if wait := b.wait.Load(); wait != nil {
		(*wait)()
	}
	return b.Conn.Read(p)
}

// Write returns once p is in the buffer, which it copies. An error is that of an earlier
// write: then the connection is lost, and nats.go reconnects.
func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > maxBuffered && !b.closed && b.err == nil {
		b.changed.Wait()
	}
	switch {
	case b.closed:
		return 0, net.ErrClosed
	case b.err != nil:
		return 0, b.err
	}
	b.waiting = append(b.waiting, p...)
	b.changed.Broadcast()
	return len(p), nil
}

// Close returns at once. The connection closes after the unsent bytes are written.
func (b *bufferedConn) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.changed.Broadcast()
	return nil
}

// SetWriteDeadline does nothing: a write waits only for space in the buffer.
func (b *bufferedConn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline is SetReadDeadline.
func (b *bufferedConn) SetDeadline(t time.Time) error { return b.Conn.SetReadDeadline(t) }

// forward writes buffered bytes until the connection is closed.
func (b *bufferedConn) forward() {
	defer b.Conn.Close()
	var spare []byte
	for {
		b.mu.Lock()
		for len(b.waiting) == 0 && !b.closed {
			b.changed.Wait()
		}
		writing := b.waiting
		b.waiting = spare[:0]
		b.changed.Broadcast()
		b.mu.Unlock()
		if len(writing) == 0 {
			return
		}
		if _, err := b.Conn.Write(writing); err != nil {
			b.mu.Lock()
			b.err = err
			b.changed.Broadcast()
			b.mu.Unlock()
			return
		}
		spare = writing
	}
}
