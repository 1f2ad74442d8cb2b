package host

import (
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Event is something that happens in Run. Its types are the others of this file: switch on
// them and ignore the rest. One run sends them in this order, those in brackets not always;
// NotServed may come before Started, too:
//
//	Doing … Opened [Folding …] Started Ready [NotServed, ServedAgain …] [Failing]
//
// or StoppedEarly, if the context ends before Ready.
type Event any

// Doing returns what Run is doing, whenever it is called, until the next Doing. If Run
// hangs, it hangs there. Any goroutine may call it.
type Doing func() string

// Opened: the NATS server is open, and the databases start next.
type Opened struct{}

// Folding is the progress of the start of an only database: Done of Total events of its
// log are folded.
type Folding struct{ Done, Total uint64 }

// Started: each database is served or has failed to start.
type Started struct{}

// Ready comes once, when requests are answered.
type Ready struct {
	Process   string // id of the process, as in status
	URL       string // of the NATS server, for clients
	Address   string // HOST:PORT at which the embedded NATS server listens; "" without one
	Console   string // URL of the web console; "" if there is none
	Cosmos    string // URL of the gateway for Cosmos DB's SDKs; "" if there is none
	Databases []Served
	// Live returns why only a restart helps, as /healthz does: nil while one database makes
	// progress. It may be called until Run returns.
	Live func() (reasons []string)
}

// Served is a database that is ready, or has failed.
type Served struct {
	Name schema.DatabaseName
	Role observe.Role // "" if it has failed
}

// NotServed: one of several databases has failed. Err names it and says why. A reason
// that stays the same comes once.
type NotServed struct{ Err error }

// ServedAgain: a database that failed has started again.
type ServedAgain struct{ Database schema.DatabaseName }

// StoppedEarly: the context has ended before anything was ready.
type StoppedEarly struct{}

// Failing: Run will return Err, once all has stopped. It may come twice.
type Failing struct{ Err error }
