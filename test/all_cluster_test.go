package test

// Of tests that run side by side, the first one declared is among the first to begin. So
// the longest is in the first file that has such tests.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// TestCluster: three NATS servers, three processors, and each in turn killed,
// frozen, cut off and misled, while clients read and write. The order of faults is
// drawn; a short run has a quarter of them.
func TestCluster(t *testing.T) {
	t.Parallel()
	for i := range stress.Pick(1, 5) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			random := stress.Rand(t)
			s := startScene(t, random, 3)
			var deck []fault
			for round := range stress.Pick(1, 12) {
				if len(deck) == 0 {
					deck = slices.Clone(faults)
					random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
				}
				n := min(len(deck), (len(faults)+3)/4)
				s.round(fmt.Sprint("r", round), deck[:n])
				deck = deck[n:]
			}
			s.writes.pause.Lock()
			defer s.writes.pause.Unlock()
			end, log := s.settle(), s.processors[0].Run("export").OK()
			if got := harness.Run(t, strings.NewReader(log), "replay", "-").OK(); got != end.Digest+"\n" {
				t.Errorf("the digest is %s, and %s by the log", end.Digest, got)
			}
		})
	}
}

// round has faults happen under load, and then looks at everything.
func (s *scene) round(name string, faults []fault) {
	t := s.t
	t.Helper()
	x := startTraffic(t, name, s.random, func(node int) *nats.Conn { return dialURL(t, s.clients.URL(node)) })
	for _, f := range faults {
		if s.inflict(f); t.Failed() {
			break
		}
	}
	s.nats.Heal()
	s.writes.pause.Lock()
	defer s.writes.pause.Unlock()
	x.stop()
	end := s.settle()
	log := wholeLog(t, s.control)
	checkLog(t, log)
	x.verify(log)
	s.writes.verify(t, bySequence(log))
	s.processors[0].Run("audit").OK()
	s.note("%s: %d events, digest %s", name, end.Seq, end.Digest)
	if t.Failed() {
		t.FailNow()
	}
}
