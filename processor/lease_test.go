package processor

import (
	"testing"

	"github.com/lapsedb/lapse/processor/observe"
)

// TestLeaseBucketOfLaterVersion: keys of the lease bucket that this version does not know are
// left alone, at a start and later.
func TestLeaseBucketOfLaterVersion(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		a, b := c.members[0], c.members[1]
		a.start()
		before, err := a.leases().PutString(a.ctx(), "process.x", "later")
		a.check(err)
		b.start()
		a.stop()
		b.becomes(observe.Writer)
		if e, err := b.leases().Get(b.ctx(), "process.x"); err != nil || e.Revision() != before {
			t.Errorf("%v, %v", e, err)
		}
	})
}
