package eventlog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// applying is a stream whose leader applies one more message at each call of Info.
type applying struct {
	jetstream.Stream
	info jetstream.StreamInfo
}

func (a *applying) CachedInfo() *jetstream.StreamInfo { return &a.info }

func (a *applying) Info(context.Context, ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	a.info.State.LastSeq++
	if a.info.State.LastSeq%2 == 0 {
		return nil, jetstream.ErrNoStreamResponse // no leader for a moment
	}
	return &a.info, nil
}

// TestMutationsCheck: Check waits for a new leader to apply the end of the mutations
// stream, but reports a lost end soon after TruncationDelay, or at once without replicas.
func TestMutationsCheck(t *testing.T) {
	for name, c := range map[string]struct {
		judged   uint64
		replicas int
		lost     bool
		within   time.Duration
	}{
		"all is there":  {judged: 1, replicas: 3},
		"is applied":    {judged: 20, replicas: 3, within: TruncationDelay},
		"is lost":       {judged: 1e6, replicas: 3, lost: true, within: TruncationDelay + 2*ResumeInterval},
		"has no others": {judged: 3, replicas: 1, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream := &applying{info: jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: c.replicas}, State: jetstream.StreamState{FirstSeq: 1, LastSeq: 1}}}
				began := time.Now()
				err := (&Mutations{db: schema.DatabaseName("main"), stream: stream}).Check(t.Context(), c.judged, false)
				if _, lost := errors.AsType[*LostEnd](err); lost != c.lost || err != nil && !lost {
					t.Errorf("it says %v", err)
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
