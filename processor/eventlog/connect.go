package eventlog

import (
	"cmp"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// How soon a connection to a NATS server elsewhere is given up that says
// nothing any more, or takes nothing: nobody closes one whose other end hangs, or
// lost its power or its network. A processor whose connections all go there
// answers nobody until then, so it is not longer than a lease takes as a rule.
const (
	pingInterval = time.Second
	missedPings  = 2
	writeTimeout = 5 * time.Second
)

// Connections are a processor's to NATS, each with the rights of what it does and
// no more. They stay the caller's to close, after Stop.
type Connections struct {
	// Log appends events, hears what became of them, renews the lease, and makes
	// and trims the streams.
	Log *nats.Conn
	// Bulk reads the log, the mutations and snapshots, and writes those: what is
	// large, and would make appends wait. Log if nil.
	Bulk *nats.Conn
	// Service takes requests and answers them. It needs no right to publish but
	// to inboxes and $SRV.>, so that nobody can have it publish elsewhere.
	Service *nats.Conn
}

func (c Connections) ForBulk() *nats.Conn { return cmp.Or(c.Bulk, c.Log) }

// others are those that are not Log's.
func (c Connections) Others() []*nats.Conn {
	return slices.DeleteFunc([]*nats.Conn{c.Bulk, c.Service}, func(nc *nats.Conn) bool { return nc == nil || nc == c.Log })
}

// leave has the connections go to other servers, or back to the same where there
// is but one. Those that are looking for one already look at once.
func (c Connections) Leave() {
	for _, nc := range append(c.Others(), c.Log) {
		_ = nc.ForceReconnect() // or it is closed, and there is nothing to leave
	}
}

// ConnectOptions are what the connections given to Start should have when the
// server is not in the same process: they reconnect for ever, also if they
// are refused meanwhile, and one that is half open is noticed within 3 s, if not
// much is being written.
func ConnectOptions() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(ResumeInterval),
		nats.ReconnectJitter(ResumeInterval, ResumeInterval),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(missedPings),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
		nats.IgnoreAuthErrorAbort(), // users may be unknown for a while, when they are changed
	}
}
