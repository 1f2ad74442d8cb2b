// Package webserver serves HTTP with limits on time and connections.
package webserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of a server.
const (
	maxConnections = 128                // further ones wait to be accepted
	maxWaiting     = maxConnections / 2 // connections without a request under way

	headerTimeout = 5 * time.Second  // from the first byte of a request, or the connection
	readTimeout   = 30 * time.Second // of a whole request
	writeTimeout  = 30 * time.Second // of a reply; a handler may set its own
	idleTimeout   = time.Minute      // between requests
)

// Serve serves HTTP until stop is called, which also cancels the requests under way. name
// is that of the server in the log.
func Serve(listener net.Listener, handler http.Handler, name string, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnState:         new(waiting).track,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(netutil.LimitListener(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
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
// header of a request, or between two. A new one above maxWaiting closes the oldest, so
// that connections that send nothing do not keep others from being accepted.
type waiting struct {
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
	if w.conns = append(w.conns, c); len(w.conns) > maxWaiting {
		_ = w.conns[0].Close()
		w.conns = slices.Delete(w.conns, 0, 1)
	}
}
