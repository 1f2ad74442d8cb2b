package console

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// maxConnections limits a server's connections; further ones wait to be accepted.
const maxConnections = 64

// Serve serves a console until stop is called, which also ends its feeds.
func Serve(listener net.Listener, handler http.Handler, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       3 * requestTimeout,
		WriteTimeout:      3 * requestTimeout, // a feed sets its own
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(netutil.LimitListener(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the console has failed", "err", err)
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
