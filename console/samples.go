package console

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/lapsedb/lapse/client"
)

// The samples of the charts: an hour of them. They are in memory: a console that starts
// has an empty chart, and nothing is stored for it.
const (
	sampleEvery = 10 * time.Second
	mostSamples = int(time.Hour / sampleEvery)
)

// sample is a part of the status at a time.
type sample struct {
	At      int64  `json:"at"` // ms since 1970, by the clock of the console
	Seq     uint64 `json:"seq"`
	Expired uint64 `json:"expired"` // expiries that the log has
	P99     int64  `json:"p99"`     // lateness, ms
	Overdue int64  `json:"overdue"`
}

// samples are the last ones, oldest first.
type samples struct {
	mu  sync.Mutex
	all []sample
}

func (s *samples) add(next sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all[max(0, len(s.all)+1-mostSamples):], next)
}

// watch samples the status until ctx is done.
func (h *Handler) watch(ctx context.Context) {
	for every := time.NewTicker(sampleEvery); ; {
		h.sample(ctx)
		select {
		case <-every.C:
		case <-ctx.Done():
			every.Stop()
			return
		}
	}
}

// sample takes a sample, or none if the status cannot be had.
func (h *Handler) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sampleEvery)
	defer cancel()
	s, err := h.client.Status(ctx)
	expired, err2 := h.client.CountEvents(ctx, client.DocumentExpired)
	if err == nil && err2 == nil {
		h.samples.add(sample{h.now(), s.Seq, sum(expired), s.LatenessMs.P99, s.Overdue})
	}
}

func sum(counts map[string]uint64) (n uint64) {
	for _, count := range counts {
		n += count
	}
	return n
}

func (h *Handler) listSamples(w http.ResponseWriter) {
	h.samples.mu.Lock()
	defer h.samples.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{"samples": append([]sample{}, h.samples.all...)})
}
