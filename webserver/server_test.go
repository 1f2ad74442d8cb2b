package webserver

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener for connections in memory, whose time is that of a bubble.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns a connection that sends text and then nothing.
func (p *pipes) dial(text string) net.Conn {
	near, far := net.Pipe()
	go func() {
		select {
		case p.accepted <- far:
		case <-p.closed:
		}
	}()
	go func() { _, _ = io.WriteString(near, text) }()
	synctest.Wait()
	return near
}

// serve serves a handler in a bubble until the end of test.
func serve(t *testing.T, handler http.HandlerFunc, test func(*pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		stop := Serve(p, handler, "test", slog.New(slog.DiscardHandler))
		test(p)
		stop()
	})
}

const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// TestIncompleteRequestsDoNotKeepOthersWaiting: any number of connections without a
// complete header leave room for a request at once, and close at the header's timeout.
func TestIncompleteRequestsDoNotKeepOthersWaiting(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "half a header": request[:20], "a request before": request, "half a second header": request + request[:20]} {
		t.Run(name, func(t *testing.T) {
			serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, func(p *pipes) {
				start := time.Now()
				var open sync.WaitGroup
				for range 3 * maxConnections {
					c := p.dial(text)
					open.Go(func() {
						defer c.Close()
						_, _ = io.Copy(io.Discard, c)
					})
				}
				c := p.dial(request)
				response, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || response.StatusCode != 204 {
					t.Fatalf("%v: %v", response, err)
				}
				if waited := time.Since(start); waited != 0 {
					t.Errorf("a request waited for %v", waited)
				}
				c.Close()
				open.Wait()
				if lasted := time.Since(start); lasted > idleTimeout {
					t.Errorf("connections without a request stayed open for %v", lasted)
				}
			})
		})
	}
}

// TestRequestsUnderWayStay: a request that takes long survives the timeouts, and any number
// of connections without a request.
func TestRequestsUnderWayStay(t *testing.T) {
	serve(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(2 * idleTimeout):
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // as a feed does
			w.WriteHeader(204)
		}
	}, func(p *pipes) {
		under := p.dial(request)
		defer under.Close()
		for range 2 * maxConnections {
			defer p.dial("").Close()
		}
		if response, err := http.ReadResponse(bufio.NewReader(under), nil); err != nil || response.StatusCode != 204 {
			t.Errorf("%v: %v", response, err)
		}
	})
}
