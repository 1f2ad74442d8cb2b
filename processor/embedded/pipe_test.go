package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
)

// TestBufferedConn: written bytes arrive complete and in order, also those written before
// a close, and writers wait while too much is buffered.
func TestBufferedConn(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	c := newBufferedConn(near)
	const writes, size = 100, 64 << 10 // more than is buffered
	go func() {
		for n := range writes {
			if _, err := c.Write(bytes.Repeat(binary.BigEndian.AppendUint32(nil, uint32(n)), size/4)); err != nil {
				t.Error(err)
			}
			if n := c.buffered(); n > maxBuffered+size {
				t.Errorf("%d bytes are waiting", n)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Write([]byte("late")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write after the close: %v", err)
		}
	}()
	got, err := io.ReadAll(far)
	if err != nil || len(got) != writes*size {
		t.Fatalf("%d bytes of %d arrived, %v", len(got), writes*size, err)
	}
	for i := 0; i < len(got); i += 4 {
		if n := binary.BigEndian.Uint32(got[i:]); n != uint32(i/size) {
			t.Fatalf("at %d is a byte of write %d", i, n)
		}
	}
}

// TestBufferedConnPeerClosed: a write fails when the other end is closed.
func TestBufferedConnPeerClosed(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	c := newBufferedConn(near)
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = c.Write(make([]byte, 1024))
	}
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

func (b *bufferedConn) buffered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}
