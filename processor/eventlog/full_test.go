package eventlog

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestExplain: an append that JetStream refuses for lack of storage says so, and so does
// the outage that follows, in which NATS no longer gives the reason. Any other outage
// names what can be, and other errors stay as they are.
func TestExplain(t *testing.T) {
	leaderless := readAck(&nats.Msg{Header: nats.Header{"Status": []string{"503"}}}, 7)
	unavailable := fmt.Errorf("read event 7: %w", &jetstream.APIError{Code: 503, ErrorCode: notAvailable})
	refused := func(code int) error {
		return readAck(&nats.Msg{Data: fmt.Appendf(nil, `{"error":{"code":503,"err_code":%d,"description":"insufficient"}}`, code)}, 7)
	}
	const full, maybe = "raise max_file of the account", "down or at their storage limit"
	for _, c := range []struct {
		err        error
		full       bool // JetStream reported it before
		want, lack string
	}{
		{err: refused(10023), want: full},
		{err: refused(10002), want: full},
		{err: refused(10071), want: "insufficient", lack: full},
		{err: fmt.Errorf("renew the lease: %w", &jetstream.APIError{Code: 500, ErrorCode: 10023}), want: ErrFull.Error() + " (renew the lease: "},
		{err: leaderless, full: true, want: full},
		{err: unavailable, full: true, want: full},
		{err: context.DeadlineExceeded, full: true, want: full},
		{err: leaderless, want: maybe, lack: full},
		{err: unavailable, want: maybe, lack: full},
		{err: context.DeadlineExceeded, want: "deadline exceeded", lack: maybe},
		{err: ErrGap, full: true, want: ErrGap.Error(), lack: full},
	} {
		l := &Log{Full: new(atomic.Bool)}
		l.Full.Store(c.full)
		if got := l.Explain(c.err).Error(); !strings.Contains(got, c.want) || c.lack != "" && strings.Contains(got, c.lack) {
			t.Errorf("%v, full before: %v: %s", c.err, c.full, got)
		}
	}
}
