package bench

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// The number of documents due in one second, alone and beside reads.
var (
	stormDocuments = versus.Size(1_000_000, 50_000)
	besideReads    = versus.Size(200_000, 50_000)
)

// stormRounds is the number of rounds of a storm: three where other benchmarks have five,
// since a round takes minutes.
var stormRounds = versus.Size(3, 2)

// BenchmarkStorm makes many documents due in one second.
//
// rate is the number of expiries a second, from the deadline until the last
// DocumentExpired is in the log, against the keys of a NATS KV bucket with TTL markers.
// Every round has servers of its own, which get no requests except for their progress.
// warnings is the same with a warning of each document before, against one without.
// beside gets documents that stay, during a storm and before it, by callers that wait for
// their replies or at a pace.
func BenchmarkStorm(b *testing.B) {
	b.Run("rate", benchmarkStormRate)
	b.Run("warnings", benchmarkStormWarnings)
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("beside/callers=%d", callers), func(b *testing.B) { benchmarkStormBeside(b, callers, 0) })
	}
	for _, pace := range []int{100, 2500} {
		b.Run(fmt.Sprintf("beside/pace=%d", pace), func(b *testing.B) { benchmarkStormBeside(b, 16, pace) })
	}
}

func benchmarkStormRate(b *testing.B) {
	storm := func(opts ...client.PropertyOption) versus.Side {
		return func() versus.Rate {
			s := startStorm(b, stormDocuments, nil, opts...)
			defer s.end()
			s.waitUntilDue()
			clock := versus.Start(s.PID())
			check(b, s.waitUntilPast())
			rate := clock.Stop(stormDocuments)
			rate.PerSecond = float64(stormDocuments) / s.took(b).Seconds()
			return rate
		}
	}
	rates := versus.Alternate(b, stormRounds, false, storm(), storm(client.PreviousImages(false)),
		func() versus.Rate { return stormOfKeys(b, stormDocuments) })
	work := stormed(stormDocuments, "to the last `DocumentExpired`")
	versus.ReportRates(b, "lapse-ops", "", rates[0])
	versus.Compare(b, work, "", rates[0], versus.Peer{Name: kvMarkers, Goal: versus.AtLeast(1.5)}, rates[2])
	const bare = "-without-images"
	versus.ReportRates(b, "lapse-ops", bare, rates[1])
	versus.Compare(b, work+", `previousImages: false`", bare, rates[1], versus.Peer{Name: kvMarkers, Goal: versus.AtLeast(1.8)}, rates[2])
}

// stormed names a row of the table.
func stormed(documents int, what string) string {
	return fmt.Sprintf("%s documents due in one second, %s", thousands(documents), what)
}

// thousands formats n with commas between thousands.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// storm is a database with a collection of documents that are due in one second.
type storm struct {
	*lapse
	documents int
	due       time.Time
	log       jetstream.Stream
	versions  []version
	warned    uint64 // sequence of the last warning
}

const stormCollection = "storm"

// settled is the minimum time without load before documents are due.
var settled = versus.Size(2*time.Second, 3*time.Second/2)

// stormLoads are the rates assumed for storing, in documents a second. The first one that
// leaves enough time before the deadline is taken.
var stormLoads = []int{60_000, 30_000, 15_000, 5_000}

// dueAfter returns the deadline of documents that are stored at a rate.
func dueAfter(documents, rate int) time.Time {
	return time.Now().Add(settled + time.Second + time.Duration(documents/rate)*time.Second).Truncate(time.Second)
}

// startStorm calls prepare, unless it is nil, and stores the documents, which are due in
// settled or later.
func startStorm(b *testing.B, documents int, prepare func(*lapse), opts ...client.PropertyOption) *storm {
	b.Helper()
	return startStormLater(b, documents, 0, prepare, opts...)
}

// startStormLater is startStorm with later more time until the deadline.
func startStormLater(b *testing.B, documents int, later time.Duration, prepare func(*lapse), opts ...client.PropertyOption) *storm {
	b.Helper()
	for _, rate := range stormLoads {
		s := &storm{lapse: startLapse(b, processor.OS), documents: documents}
		s.log = s.logStream(b)
		if prepare != nil {
			prepare(s.lapse)
		}
		s.create(b, stormCollection, append(opts, client.TTLPerDocument())...)
		s.due = dueAfter(documents, rate).Add(later)
		var ok bool
		if s.versions, ok = storeDue(b, s.lapse, stormCollection, documents, s.due.Unix()); ok && time.Until(s.due) > settled+later {
			return s
		}
		s.end()
	}
	b.Fatal("documents are not stored in time")
	return nil
}

func (s *storm) waitUntilDue() { time.Sleep(time.Until(s.due)) }

// waitUntilPast waits until all documents have expired. It polls the length of the log at
// NATS, not lapse, whose expiries would wait to leave time for requests.
func (s *storm) waitUntilPast() error {
	stored := s.warned
	for _, v := range s.versions {
		stored = max(stored, v.seq)
	}
	for time.Since(s.due) < 10*timeout {
		info, err := s.log.Info(context.Background())
		if err != nil {
			return err
		}
		if info.State.LastSeq >= stored+uint64(s.documents) {
			// The log may also have grown by other events.
			if left, err := unexpired(s.lapse); err != nil || left == 0 {
				return err
			}
		}
		time.Sleep(stormPoll)
	}
	return fmt.Errorf("not all expired within %s", 10*timeout)
}

// stormPoll is the interval between two polls of the progress.
const stormPoll = 50 * time.Millisecond

// took returns the time from the deadline until NATS stored the last DocumentExpired. It
// reads them all, and fails unless there is one for each version, none of them early.
func (s *storm) took(b *testing.B) time.Duration {
	b.Helper()
	all := expiries(b, s.lapse, stormCollection, 0, s.versions)
	return all[len(all)-1].late()
}

// end kills lapse and removes the database.
func (s *storm) end() {
	s.Kill()
	_ = os.RemoveAll(s.Dir)
}

// benchmarkStormBeside gets documents that stay while others expire, and shortly before.
// With a pace, the rate of the expiries is compared, too: with that of keys that NATS KV
// deletes with nobody reading.
func benchmarkStormBeside(b *testing.B, callers, pace int) {
	const documents = 20_000
	var conns []*nats.Conn
	get := func(caller, n int) error {
		_, err := request(conns[caller%connections], subject("get", "orders", versus.Spread(n, documents)), nil, read)
		return err
	}
	var past atomic.Bool
	quiet := &versus.Callers{N: callers, Pace: pace, For: roundTime, Do: get}
	beside := &versus.Callers{N: callers, Pace: pace, For: 10 * timeout, Do: get, Until: past.Load}
	quietRound, besideRound := quiet.Round(b), beside.Round(b)
	sides := []versus.Side{func() versus.Rate {
		s := startStorm(b, besideReads, func(l *lapse) { load(b, l.create(b, "orders"), 0, documents, versus.Document) })
		defer s.end()
		conns = versus.Connections(b, s.URL(), connections)
		time.Sleep(time.Until(s.due.Add(-settled/2 - roundTime)))
		quietRound()
		s.waitUntilDue()
		past.Store(false)
		clock := versus.Start(s.PID())
		var err error
		go func() {
			err = s.waitUntilPast()
			past.Store(true)
		}()
		besideRound()
		check(b, err)
		rate := clock.Stop(besideReads)
		rate.PerSecond = float64(besideReads) / s.took(b).Seconds()
		return rate
	}}
	if pace > 0 {
		sides = append(sides, func() versus.Rate { return stormOfKeys(b, besideReads) })
	}
	rates := versus.Alternate(b, versus.Size(stormRounds, 1), false, sides...)
	versus.ReportRates(b, "expiries", "", rates[0])
	who, goal := countCallers(callers), besideGoal[callers]
	if pace > 0 {
		who, goal = thousands(pace)+" a second", versus.AtMost(4)
		versus.Compare(b, stormed(besideReads, "to the last `DocumentExpired`, beside `get`, "+who), "", rates[0],
			versus.Peer{Name: kvMarkers, Goal: versus.AtLeast(0.65)}, rates[1])
	}
	versus.ReportP99(b, stormed(besideReads, "p99 of `get` meanwhile, "+who), goal, beside.P99s(), quiet.P99s())
}
