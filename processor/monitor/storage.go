package monitor

import (
	"context"
	"sync"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// How soon the streams are full. The rate is measured over the last hour, from samples a
// minute apart; the limit that counts is the one with the least space left. A rate needs
// ten minutes, since a burst of a minute would predict the end of the disk.

// Usage is how much the streams of a database take, and the limits that are known.
type Usage struct {
	Log, Mutations uint64 // bytes
	Limits         []Limit
}

// Limit is a limit of the space for streams, in bytes; see schema.StorageLimit.
type Limit struct {
	Name      string
	Max, Left uint64
}

// AddLimit adds a limit of most bytes, of which used are used, both the sum of a number of
// replicas. JetStream has no limit where most is not positive.
func (u *Usage) AddLimit(name string, most int64, used, replicas uint64) {
	if most > 0 {
		u.Limits = append(u.Limits, Limit{name, uint64(most) / replicas, (uint64(most) - min(used, uint64(most))) / replicas})
	}
}

const (
	sampleInterval = time.Minute
	rateOver       = time.Hour        // the rate is that between the oldest sample within it and the last
	rateAtLeast    = 10 * time.Minute // no rate is known before
)

// storage has samples of the last hour. Its methods may be called from any goroutine.
type storage struct {
	mu      sync.Mutex
	samples []usageSample // oldest first
}

type usageSample struct {
	at time.Time
	Usage
}

// add adds a sample, and forgets those from which the rate no longer follows.
func (s *storage) add(at time.Time, usage Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.samples) > 0 && at.Sub(s.samples[0].at) > rateOver {
		s.samples = s.samples[1:]
	}
	s.samples = append(s.samples, usageSample{at, usage})
}

// status returns what follows from the samples, nil if there is none. The first limit is
// the one with the least space left, whatever the rates: it does not alternate with them.
func (s *storage) status() *schema.Storage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samples) == 0 {
		return nil
	}
	oldest, last := s.samples[0], s.samples[len(s.samples)-1]
	status := &schema.Storage{LogBytes: last.Log, MutationsBytes: last.Mutations}
	for _, l := range last.Limits {
		if status.Limit == nil || l.Left < status.Limit.LeftBytes {
			status.Limit = &schema.StorageLimit{Name: l.Name, Bytes: l.Max, LeftBytes: l.Left}
		}
	}
	if status.Limit != nil {
		status.Limit.FullInHours = hoursLeft(&oldest, &last, status.Limit.Name)
	}
	return status
}

// hoursLeft returns in how many hours nothing is left of a limit, nil if that is not known
// or never: what is left now, divided by what an hour takes. A trim in between makes the
// rate smaller, or negative, which is never.
func hoursLeft(oldest, last *usageSample, name string) *float64 {
	took := last.at.Sub(oldest.at)
	before, now := oldest.of(name), last.of(name)
	if took < rateAtLeast || before == nil || before.Left <= now.Left {
		return nil
	}
	hours := float64(now.Left) / float64(before.Left-now.Left) * took.Hours()
	return &hours
}

// of returns the limit with a name, nil for none.
func (u *Usage) of(name string) *Limit {
	for i := range u.Limits {
		if u.Limits[i].Name == name {
			return &u.Limits[i]
		}
	}
	return nil
}

// Storage returns the space of the streams, nil if it was never known. While NATS does not
// answer it is that of the last sample.
func (m *Monitor) Storage() *schema.Storage { return m.storage.status() }

// SampleStorage takes a sample. It waits for NATS for a second at most.
func (m *Monitor) SampleStorage(ctx context.Context, from Source) {
	ctx, cancel := context.WithTimeout(ctx, endsTimeout)
	defer cancel()
	if usage, err := from.Usage(ctx); err == nil {
		m.storage.add(time.Now(), usage)
	}
}

// WatchStorage takes a sample every minute until ctx ends.
func (m *Monitor) WatchStorage(ctx context.Context, from Source) {
	next := time.NewTicker(sampleInterval)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			m.SampleStorage(ctx, from)
		case <-ctx.Done():
			return
		}
	}
}
