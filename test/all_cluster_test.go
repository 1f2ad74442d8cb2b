package test

// Among parallel tests, those declared first begin first. So the longest one is in the
// first file that has any.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// TestCluster: three NATS servers and three processors lose nothing while each in turn is
// killed, frozen and cut off, and clients read and write. The order of faults is
// random; a short run has a quarter of them.
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

// round inflicts faults under load, and then verifies everything.
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
