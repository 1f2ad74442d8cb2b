// Package webserver serves HTTP with limits on time and connections.
package webserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of a server, and whether it serves HTTPS; the zero value has the defaults.
type Limits struct {
	Connections int           // further ones wait to be accepted; 128 if 0
	Idle        time.Duration // of a connection between requests; a minute if 0
	TLS         *tls.Config   // for HTTPS; nil for HTTP
}

// maxConnections is the default of Limits.Connections.
const maxConnections = 128

// Limits that all servers have. They bound how long a slow or silent client holds a
// connection. A handler that writes for longer, as a feed, moves the deadline itself.
const (
	headerTimeout = 5 * time.Second  // from the first byte of a request, or the connection
	readTimeout   = 30 * time.Second // of a whole request
	writeTimeout  = 30 * time.Second // of a reply; a handler may set its own
	idleTimeout   = time.Minute      // between requests
)

// Serve serves HTTP with the default limits until stop is called.
func Serve(listener net.Listener, handler http.Handler, name string, logger *slog.Logger) (stop func()) {
	return Limits{}.Serve(listener, handler, name, logger)
}

// Serve serves HTTP until stop is called, which also cancels the requests under way. name
// is that of the server in the log. Stop waits a second for requests that end by the
// cancelled context, then closes their connections.
func (l Limits) Serve(listener net.Listener, handler http.Handler, name string, logger *slog.Logger) (stop func()) {
	l.Connections, l.Idle = cmp.Or(l.Connections, maxConnections), cmp.Or(l.Idle, idleTimeout)
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       l.Idle,
		MaxHeaderBytes:    16 << 10,
		ConnState:         (&waiting{most: l.Connections / 2}).track,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	listener = netutil.LimitListener(listener, l.Connections)
	if l.TLS != nil {
		listener = tls.NewListener(listener, l.TLS)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("an HTTP server has failed", "server", name, "err", err)
		}
	}()
	return func() {
		cancel()
		within, done := context.WithTimeout(context.Background(), time.Second)
		defer done()
		if server.Shutdown(within) != nil {
			_ = server.Close()
		}
		<-ended
	}
}

// waiting are the connections without a request under way, oldest first: new, within the
// header of a request, or between two. A new one above most closes the oldest, so that
// connections that send nothing do not keep others from being accepted. A request under
// way is never closed by it.
type waiting struct {
	most  int
	mu    sync.Mutex
	conns []net.Conn
}

// track is http.Server.ConnState.
func (w *waiting) track(c net.Conn, state http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = slices.DeleteFunc(w.conns, func(other net.Conn) bool { return other == c })
	if state != http.StateNew && state != http.StateIdle {
		return
	}
	if w.conns = append(w.conns, c); len(w.conns) > w.most {
		_ = w.conns[0].Close()
		w.conns = slices.Delete(w.conns, 0, 1)
	}
}
