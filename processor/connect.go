package processor

import (
	"time"

	"github.com/nats-io/nats.go"
)

// How soon a connection to a NATS server elsewhere is given up that says
// nothing any more, or takes nothing: nobody closes one whose other end lost
// its power or its network.
const (
	logPingInterval = 5 * time.Second
	missedPings     = 2
	writeTimeout    = 5 * time.Second
)

// ConnectOptions are what the connections given to Start should have when the
// server is not in the same process: they reconnect for ever, and one that is
// half open is noticed within 15 s.
func ConnectOptions() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(resumeInterval),
		nats.ReconnectJitter(resumeInterval, resumeInterval),
		nats.PingInterval(logPingInterval),
		nats.MaxPingsOutstanding(missedPings),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
	}
}
