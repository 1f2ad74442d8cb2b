package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestQuorum: a leader that still answers, and hears too few of the others, is known by its
// own account of them.
func TestQuorum(t *testing.T) {
	heard := &jetstream.PeerInfo{Current: true, Active: silence - time.Millisecond}
	silent := &jetstream.PeerInfo{Current: true, Active: silence}
	offline := &jetstream.PeerInfo{Offline: true}
	for name, test := range map[string]struct {
		cluster *jetstream.ClusterInfo
		lost    bool
	}{
		"no cluster":                 {nil, false},
		"one replica":                {&jetstream.ClusterInfo{Leader: "a"}, false},
		"all three":                  {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{heard, heard}}, false},
		"two of three":               {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{silent, heard}}, false},
		"one of three":               {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{silent, offline}}, true},
		"two of five":                {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{silent, offline, heard, silent}}, true},
		"three of five":              {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{heard, offline, heard, silent}}, false},
		"one of two":                 {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{silent}}, true},
		"three without a leader":     {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{silent, offline, heard}}, true},
		"one replica without leader": {&jetstream.ClusterInfo{}, true},
	} {
		if err := quorum(test.cluster); errors.Is(err, errNoQuorum) != test.lost || (err != nil) != test.lost {
			t.Errorf("%s: %v", name, err)
		}
	}
}
