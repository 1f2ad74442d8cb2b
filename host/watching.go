package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/webserver"
)

// Health has three answers, for those who act on them differently. /healthz: only a restart
// helps, for a supervisor; one database that makes progress is reason enough not to
// restart. /readyz: all databases answer, for a load balancer. /status: how things are, for
// people. Each gives plain text or, by Accept, JSON (Readiness), 200 or 503, and names
// reasons in one line each. ?database=NAME restricts all of them.
//
// None of them asks NATS but /status, for statusPatience: a check that hangs with NATS
// would have the process killed for the fault of another.

// serveWatchers serves HTTP at Metrics and HealthSocket, if given, until stop is called:
// /healthz and /readyz for orchestrators and load balancers, /status for people, and at
// Metrics /metrics for Prometheus, and / with links to them.
func (r *run) serveWatchers() (stop func(), err error) {
	stopHealth, err := r.serveHealth()
	if err != nil || r.Metrics == "" {
		return stopHealth, err
	}
	mux := watchers(&r.monitors)
	mux.HandleFunc("GET /{$}", index(r.Profiles))
	if r.Profiles {
		addProfiles(mux)
	}
	stopMetrics, err := ServeMetrics(r.Metrics, &r.monitors, mux, r.Processor.Logger)
	if err != nil {
		stopHealth()
		return nil, err
	}
	return func() { stopMetrics(); stopHealth() }, nil
}

// ServeMetrics serves mux at an address, HOST:PORT, until stop is called, and at its
// /metrics the metrics of collector, of Go and of the process. The registry is its own, so
// a program that embeds lapse keeps its default one.
func ServeMetrics(address string, collector prometheus.Collector, mux *http.ServeMux, logger *slog.Logger) (stop func(), err error) {
	listener, err := webserver.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve metrics at %s: %w: choose another address with --metrics HOST:PORT", address, err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
	return webserver.Serve(listener, mux, "metrics", logger), nil
}

// index lists the paths at Metrics.
func index(profiles bool) http.HandlerFunc {
	text := `/metrics        metrics for Prometheus
/healthz        200, or 503 if the process needs a restart
/readyz         200, or 503 with the reasons why it is not ready
/status         the status of the process, as JSON
`
	if profiles {
		text += "/debug/pprof/   profiles and execution traces of Go\n"
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, text)
	}
}

// serveHealth serves HTTP at HealthSocket, if given, until stop is called.
func (r *run) serveHealth() (stop func(), err error) {
	if r.HealthSocket == "" {
		return func() {}, nil
	}
	listener, err := listenUnix(r.HealthSocket)
	if err != nil {
		return nil, fmt.Errorf("cannot serve health at %s: %w: choose another path with --health-socket PATH", r.HealthSocket, err)
	}
	return webserver.Serve(listener, watchers(&r.monitors), "health", r.Processor.Logger), nil
}

// listenUnix listens at path, instead of a process that ended without removing its socket:
// nobody accepts there (ECONNREFUSED). A socket that answers belongs to a process that
// runs, and any other file is not ours to remove.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, errors.New("a file that is no socket has this path")
		}
		nc, err := net.Dial("unix", path)
		if err == nil {
			return nil, errors.Join(webserver.ErrTaken, nc.Close())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		_ = os.Remove(path) // if that fails, listening does
	}
	return net.Listen("unix", path)
}

// addProfiles adds Go's profiles and execution traces: net/http/pprof, which extends the
// timeout of a reply by the length of the profile. The rates make mutex and block profiles
// cheap enough to leave on.
func addProfiles(mux *http.ServeMux) {
	runtime.SetMutexProfileFraction(100)
	runtime.SetBlockProfileRate(int(100 * time.Microsecond))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// scrapes limits concurrent scrapes; more get 503.
const scrapes = 4

// statusPatience is the timeout of /status for NATS.
const statusPatience = 2 * time.Second

// watchers returns the handlers of health. A database that is not known is not ready,
// rather than not found: its name may be known in a moment.
func watchers(monitors *monitors) *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(path string, reply func(w http.ResponseWriter, r *http.Request, some []*monitor.Monitor, named bool)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			query, err := url.ParseQuery(r.URL.RawQuery)
			if err != nil {
				http.Error(w, "the query of the URL cannot be parsed: "+err.Error(), http.StatusBadRequest)
				return
			}
			some, named := monitors.of(query.Get("database"))
			if len(some) == 0 && path != "/healthz" {
				replyHealth(w, r, []string{"the database is not served here, or its name is not known yet"})
				return
			}
			reply(w, r, some, named)
		})
	}
	handle("/healthz", func(w http.ResponseWriter, r *http.Request, some []*monitor.Monitor, named bool) {
		replyHealth(w, r, live(some, named))
	})
	handle("/readyz", func(w http.ResponseWriter, r *http.Request, some []*monitor.Monitor, named bool) {
		replyHealth(w, r, ready(some, named))
	})
	handle("/status", replyStatus)
	return mux
}

// replyStatus replies with the status of each database that is served, a line of JSON each,
// or with 503 if none is.
func replyStatus(w http.ResponseWriter, r *http.Request, some []*monitor.Monitor, named bool) {
	ctx, cancel := context.WithTimeout(r.Context(), statusPatience)
	defer cancel()
	var all []any
	var reasons []string
	for _, mon := range some {
		status, err := mon.Status(ctx)
		if err != nil {
			reasons = append(reasons, about(mon, named, err.Error()))
			continue
		}
		all = append(all, status)
	}
	if len(all) == 0 {
		replyHealth(w, r, append(ready(some, named), reasons...))
		return
	}
	replyJSON(w, http.StatusOK, all...)
}

// Readiness is the JSON form of /healthz and /readyz.
type Readiness struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons"`
}

// replyHealth replies 200 ok, or 503 with a line for each reason.
func replyHealth(w http.ResponseWriter, r *http.Request, reasons []string) {
	code := http.StatusOK
	if len(reasons) > 0 {
		code = http.StatusServiceUnavailable
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		replyJSON(w, code, Readiness{OK: len(reasons) == 0, Reasons: append([]string{}, reasons...)})
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

// replyJSON replies with a line for each value.
func replyJSON(w http.ResponseWriter, code int, values ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	lines := json.NewEncoder(w)
	for _, value := range values {
		_ = lines.Encode(value)
	}
}
