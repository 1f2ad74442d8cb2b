package sessions

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/lapsedb/lapse/client"
)

// Ends tells browsers when their session ends, by logout or expiry.
type Ends struct {
	store *Store
	id    func(*http.Request) string
	mu    sync.Mutex
	seen  uint64 // log sequence
	waits map[string]map[chan string]bool
}

// Watch follows the log until ctx is done or an error, with which it calls failed. id
// returns the id of a request's session, "" for none.
func (s *Store) Watch(ctx context.Context, c *client.Client, id func(*http.Request) string, failed func(error)) (*Ends, error) {
	_, last, err := c.LogBounds(ctx)
	if err != nil {
		return nil, err
	}
	e := &Ends{store: s, id: id, seen: last, waits: map[string]map[chan string]bool{}}
	go func() {
		for event, err := range c.Changes(ctx, client.FromSeq(last+1), client.InCollection(s.Sessions.Name()),
			client.OfType(client.DocumentExpired, client.DocumentDeleted)) {
			if err != nil {
				failed(err)
				return
			}
			why := map[client.EventType]string{client.DocumentExpired: "expired", client.DocumentDeleted: "logout"}[event.Type]
			e.mu.Lock()
			e.seen = event.Seq
			for wait := range e.waits[event.ID] {
				offer(wait, why)
			}
			delete(e.waits, event.ID)
			e.mu.Unlock()
		}
	}()
	return e, nil
}

// offer does not block: a request that has one reason needs no second.
func offer(wait chan<- string, why string) {
	select {
	case wait <- why:
	default:
	}
}

// ServeHTTP is an EventSource with one event, "ended", whose data is "expired" or "logout".
// The browser connects again if the connection breaks. It renews nothing.
func (e *Ends) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, wait := e.id(r), make(chan string, 1)
	e.mu.Lock()
	if e.waits[id] == nil {
		e.waits[id] = map[chan string]bool{}
	}
	e.waits[id][wait] = true
	seen := e.seen
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if delete(e.waits[id], wait); len(e.waits[id]) == 0 {
			delete(e.waits, id)
		}
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	// It may have ended before the wait began.
	if _, err := client.Get[document](r.Context(), e.store.Sessions, id, client.MinSeq(seen)); ended(err) == ErrEnded || id == "" {
		offer(wait, "expired")
	} else if err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case why := <-wait:
		fmt.Fprintf(w, "event: ended\ndata: %s\n\n", why)
	case <-r.Context().Done():
	}
}
