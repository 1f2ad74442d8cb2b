package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
)

// Timeouts after which a connection to an external NATS server that is silent, or accepts
// nothing, is closed: a server that hangs, or loses its power or network, does not close
// it. Until then the processor cannot reply, so they stay below the usual lease TTL.
const (
	pingInterval = time.Second
	missedPings  = 2
	writeTimeout = 5 * time.Second
)

// Connections are a processor's connections to NATS, each with only the permissions
// of its task. The caller closes them, after Stop.
type Connections struct {
	// Log and Bulk may serve several databases, see Shared.
	//
	// Log appends events and receives the acknowledgements, renews the lease, and
	// creates and trims the streams.
	Log *nats.Conn
	// Bulk reads the log, mutations and snapshots, and writes snapshots: large
	// transfers that would delay appends. If nil, Log is used.
	Bulk *nats.Conn
	// Service receives requests and replies. It needs permission to publish to inboxes
	// and $SRV.> only, so that no client can make it publish anywhere else.
	Service *nats.Conn
	// Shared is set if Log and Bulk serve other databases, too. Then the caller keeps
	// them on one server.
	Shared bool
	// Only is set if no other process can serve the databases of this NATS server.
	Only bool
	// Stage asks the server to stage a batch of that many bytes for the log in memory,
	// and returns its id, or "". nil if the server cannot. Called from one goroutine.
	Stage func(bytes int) (batch string)
	// Checked is set if all files of the log were read and found undamaged before the
	// server opened them.
	Checked bool
}

// ForBulk returns Bulk, or Log if that is nil.
func (c Connections) ForBulk() *nats.Conn { return cmp.Or(c.Bulk, c.Log) }

// Others returns the connections other than Log.
func (c Connections) Others() []*nats.Conn {
	return slices.DeleteFunc([]*nats.Conn{c.Bulk, c.Service}, func(nc *nats.Conn) bool { return nc == nil || nc == c.Log })
}

// Followers returns the connections that the processor keeps on the server of Log.
func (c Connections) Followers() []*nats.Conn {
	if c.Shared {
		return []*nats.Conn{c.Service}
	}
	return c.Others()
}

// Leave reconnects all connections, to another server if they know one. Connections that
// are already reconnecting retry at once. It is for a process whose server answers
// connections but no longer belongs to the cluster.
func (c Connections) Leave() {
	for _, nc := range append(c.Others(), c.Log) {
		_ = nc.ForceReconnect() // fails only if it is closed
	}
}

// ConnectOptions returns the options for connections to an external server that are
// passed to Start. They reconnect for ever, even if refused meanwhile, and notice a
// half-open connection within 3 s while little is written.
func ConnectOptions() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(ResumeInterval),
		nats.ReconnectJitter(ResumeInterval, ResumeInterval),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(missedPings),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
		nats.IgnoreAuthErrorAbort(), // users may be unknown for a while when they are changed
	}
}

// Refused returns an error if the last error on nc is that NATS refuses its user one of the
// subjects. NATS reports that asynchronously, but before it answers a flush: so flush, then
// ask.
func Refused(nc *nats.Conn, subjects ...string) error {
	err := nc.LastError()
	about := func(subject string) bool { return strings.Contains(err.Error(), strconv.Quote(subject)) }
	if !errors.Is(err, nats.ErrPermissionViolation) || !slices.ContainsFunc(subjects, about) {
		return nil
	}
	return fmt.Errorf("NATS refuses a subject to the connection %q (%w): give its user the rights that it has in nats.conf", nc.Opts.Name, err)
}

// CheckRights returns an error if NATS refuses the user of nc to publish to one of the
// subjects. It publishes an empty object there, for which each must have no use. If NATS
// does not answer, it returns nil: whoever needs the subjects will notice.
func CheckRights(nc *nats.Conn, subjects ...string) error {
	for _, subject := range subjects {
		if err := nc.Publish(subject, []byte("{}")); err != nil {
			return err
		}
	}
	if nc.FlushTimeout(tryTimeout) != nil {
		return nil
	}
	return Refused(nc, subjects...)
}

// ResumeInterval is the first interval before a failed request to NATS is retried.
const ResumeInterval = 100 * time.Millisecond

// TryForever retries until ctx ends: soon at first, then about every two seconds.
func TryForever(ctx context.Context) backoff.BackOffContext { return tryFor(ctx, 0) }

// tryFor is TryForever that gives up after some time, if that is not 0.
func tryFor(ctx context.Context, most time.Duration) backoff.BackOffContext {
	return backoff.WithContext(backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(ResumeInterval),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(most)), ctx)
}
