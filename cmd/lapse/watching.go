package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lapsedb/lapse/processor/monitor"
)

// serveWatchers answers those who watch the process, at HOST:PORT until stop is
// called: /metrics for Prometheus, /healthz and /readyz for who starts and
// routes, /status for people. It does so from the first moment on.
func serveWatchers(listen string, monitor *monitor.Monitor, logger *slog.Logger) (stop func(), err error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("cannot serve metrics: %w: choose another --metrics", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(monitor, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	server := &http.Server{Handler: watchers(registry, monitor), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn)}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("metrics are no longer served", "err", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}, nil
}

// scrapes is how many may be under way; more are told to come back.
const scrapes = 4

// statusPatience bounds what /status waits for NATS.
const statusPatience = 2 * time.Second

func watchers(registry *prometheus.Registry, monitor *monitor.Monitor) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		var reasons []string
		if err := monitor.Live(); err != nil {
			reasons = []string{err.Error()}
		}
		tellHealth(w, r, reasons)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { tellHealth(w, r, monitor.Ready()) })
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), statusPatience)
		defer cancel()
		status, err := monitor.Status(ctx)
		if err != nil {
			tellHealth(w, r, append(monitor.Ready(), err.Error()))
			return
		}
		tellJSON(w, http.StatusOK, status)
	})
	return mux
}

// readiness is what /healthz and /readyz say to who asks for JSON.
type readiness struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons"`
}

// tellHealth says ok, or 503 and why not, a reason a line.
func tellHealth(w http.ResponseWriter, r *http.Request, reasons []string) {
	code := http.StatusOK
	if len(reasons) > 0 {
		code = http.StatusServiceUnavailable
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		tellJSON(w, code, readiness{OK: len(reasons) == 0, Reasons: append([]string{}, reasons...)})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	if len(reasons) == 0 {
		reasons = []string{"ok"}
	}
	for _, reason := range reasons {
		_, _ = fmt.Fprintln(w, strings.ReplaceAll(reason, "\n", " "))
	}
}

func tellJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}
