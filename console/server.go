package console

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConnections limits a server's connections; more wait to be accepted.
const maxConnections = 64

// Serve serves a console until stop is called, which cuts off its feeds.
func Serve(listener net.Listener, handler http.Handler, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       3 * requestTimeout,
		WriteTimeout:      3 * requestTimeout, // a feed has its own
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		limited := &limitedListener{Listener: listener, places: make(chan struct{}, maxConnections), closed: make(chan struct{})}
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
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

// limitedListener accepts a connection only when it has a place for it.
type limitedListener struct {
	net.Listener
	places chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.places })}, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
