package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// errNoQuorum means that NATS answers and stores nothing, so that no lease is renewed or
// taken.
var errNoQuorum = errors.New("NATS stores nothing now")

// silence is for how long a replica is not heard until it counts as gone. The leader of a
// stream hears each of them once a second, and goes on to answer for 10 to 20 s after it
// has lost most of them.
const silence = 3 * time.Second

// quorum returns errNoQuorum if a stream has no leader, or one that hears so few replicas
// that it can store nothing.
func quorum(c *jetstream.ClusterInfo) error {
	if c == nil {
		return nil
	}
	there, all := 0, len(c.Replicas)+1
	if c.Leader != "" {
		there++
	}
	for _, replica := range c.Replicas {
		if !replica.Offline && replica.Active < silence {
			there++
		}
	}
	if there > all/2 {
		return nil
	}
	return fmt.Errorf("%w: of the %d servers that keep the lease, %d can be heard", errNoQuorum, all, there)
}
