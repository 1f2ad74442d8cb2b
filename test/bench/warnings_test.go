package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/versus"
)

// warningTime is the minimum time from the warnings of a storm to the deadline.
var warningTime = versus.Size(40*time.Second, 4*time.Second)

// benchmarkStormWarnings turns warnings on when all documents are stored: each gets a
// warning at once, and expires at its deadline. The rate is that of expiries in the sum
// of two times: from the change to the last warning and from the deadline to the last
// expiry.
func benchmarkStormWarnings(b *testing.B) {
	storm := func(later time.Duration) versus.Side {
		return func() versus.Rate {
			s := startStormLater(b, stormDocuments, later, nil)
			defer s.end()
			clock := versus.Start(s.PID())
			var began time.Time
			if later > 0 {
				began = s.warn(b)
			}
			s.waitUntilDue()
			check(b, s.waitUntilPast())
			rate := clock.Stop(stormDocuments)
			took := s.took(b)
			if later > 0 {
				warnings := s.lastWarning(b).Sub(began)
				b.ReportMetric(float64(stormDocuments)/warnings.Seconds(), "warnings/s")
				took += warnings
			}
			rate.PerSecond = float64(stormDocuments) / took.Seconds()
			return rate
		}
	}
	rates := versus.Alternate(b, stormRounds, false, storm(warningTime), storm(0))
	versus.ReportRates(b, "lapse-ops", "", rates[0])
	versus.Compare(b, stormed(stormDocuments, "each warned of before; expiries in the time that both took"), "", rates[0], versus.Peer{Name: "without warnings", Goal: versus.AtLeast(0.45)}, rates[1])
}

// warn turns warnings on, waits until all are in the log and returns the time of the
// change.
func (s *storm) warn(b *testing.B) (began time.Time) {
	b.Helper()
	began = time.Now()
	coll, err := s.client.ChangeCollection(context.Background(), stormCollection, client.WarnBefore(24*time.Hour))
	check(b, err)
	changed, err := strconv.ParseUint(coll.Info().ETag, 10, 64)
	check(b, err)
	s.warned = changed + uint64(stormDocuments)
	for ; ; time.Sleep(stormPoll) {
		info, err := s.log.Info(context.Background())
		if err != nil {
			b.Fatalf("before all documents were warned of: %v", err)
		}
		if info.State.LastSeq >= s.warned {
			return began
		}
	}
}

// lastWarning returns the time at which NATS stored the last warning. It reads them all,
// and fails unless there is one for each version.
func (s *storm) lastWarning(b *testing.B) (last time.Time) {
	b.Helper()
	seen := make(map[string]bool, stormDocuments)
	readAll(b, s.URL(), "LAPSE_main", "lapse.main.events."+stormCollection+".DocumentExpiring", func(m jetstream.Msg, stored time.Time) error {
		id := m.Headers().Get(schema.HeaderID)
		if seen[id] || m.Headers().Get(schema.HeaderDeadline) != fmt.Sprint(s.due.Unix()) {
			return fmt.Errorf("a second warning, or of another deadline: %v", m.Headers())
		}
		seen[id], last = true, stored
		return nil
	})
	if len(seen) != stormDocuments {
		b.Fatalf("%d documents of %d were warned of", len(seen), stormDocuments)
	}
	return last
}
