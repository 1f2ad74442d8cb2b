package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// Moved is the consoles of databases that come and go and whose clocks are moved: each at
// /NAME/, and the one that is there at first at /, too. Requests look up a handler under
// the lock and use it without: a database that is removed meanwhile answers the last
// request by an error of its own.
type Moved struct {
	ctx     context.Context
	options Options

	mu    sync.RWMutex
	first *Handler
	of    map[string]*Handler
	end   map[string]context.CancelFunc
}

// NewMoved returns consoles of no database; they sample statuses until ctx is done.
func NewMoved(ctx context.Context, options Options) *Moved {
	return &Moved{ctx: ctx, options: options, of: make(map[string]*Handler), end: make(map[string]context.CancelFunc)}
}

// Add serves the console of a database, whose clock shows now in Unix ms. The caller keeps
// ownership of the client.
func (m *Moved) Add(c *client.Client, now func() int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, end := context.WithCancel(m.ctx)
	h := New(ctx, c, m.options)
	h.now, h.moves, h.databases = now, true, m.names
	if m.first == nil || m.first.client.Database() == c.Database() {
		m.first = h
	}
	m.of[c.Database()], m.end[c.Database()] = h, end
}

// Remove ends the console of a database.
func (m *Moved) Remove(database string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if end := m.end[database]; end != nil {
		end()
	}
	delete(m.of, database)
	delete(m.end, database)
}

// names returns the databases in order; nil if there is only one.
func (m *Moved) names() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.of) < 2 {
		return nil
	}
	names := make([]string, 0, len(m.of))
	for name := range m.of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ServeHTTP passes a request to the console that its path names.
func (m *Moved) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	m.mu.RLock()
	h, there := m.of[name]
	first := m.first
	m.mu.RUnlock()
	if there && (below && name != "api" || r.URL.Path == "/"+name) {
		http.StripPrefix("/"+name, h).ServeHTTP(w, r)
		return
	}
	first.ServeHTTP(w, r)
}

// advance moves the clock of the database: by a length of time, or to the next moment at which
// something is due. It takes a sample at once and forgets the forecast, so that the charts
// show the new time without waiting.
func (h *Handler) advance(w http.ResponseWriter, r *http.Request) {
	if !h.mayChange(w, r) {
		return
	}
	query, err := parameters(r, "by")
	if err != nil {
		refuseError(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), importTimeout)
	defer cancel()
	clock := h.client.TestClock()
	move := clock.AdvanceToDue
	if query.Has("by") {
		move = func(ctx context.Context) (client.Advanced, error) {
			by, err := schema.ParseSpan(query.Get("by"))
			if err != nil {
				return client.Advanced{}, client.ErrBadRequest.With("by: %v", err)
			}
			return clock.Advance(ctx, time.Duration(by)*time.Second)
		}
	}
	moved, err := move(ctx)
	if err != nil {
		refuseError(w, err)
		return
	}
	h.sample(ctx)
	h.outlook.expire()
	w.Header().Set(schema.HeaderSeq, strconv.FormatUint(moved.Seq, 10))
	reply(w, http.StatusOK, map[string]any{"now": moved.Now.UnixMilli(), "seq": moved.Seq, "events": moved.Events})
}
