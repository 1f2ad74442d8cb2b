package test

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
// frozen, cut off and misled, while clients read and write. Every run has every
// fault; the order is drawn.
func TestCluster(t *testing.T) {
	t.Parallel()
	for i := range stress.Pick(1, 5) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			random := stress.Rand(t)
			s := startScene(t, random, 3)
			var deck []fault
			for round := range stress.Pick(3, 10) {
				if len(deck) < 3 {
					more := slices.Clone(faults)
					random.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
					deck = append(deck, more...)
				}
				n := min(len(deck), (len(faults)+2)/3)
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
