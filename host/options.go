package host

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/cosmos"
	"github.com/lapsedb/lapse/internal/memory"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
)

// Options of Run. The zero value serves all databases of the store directory "data" with
// an embedded NATS server, without web console and metrics. A field's tag says what it does, and
// is the text of its flag of lapse serve; comments say what a program has to know besides.
type Options struct {
	// "data" if empty. With External it holds only what can be made again from the streams.
	StoreDir string `flag:"store all files below [DIR], which only one process at a time may use"`
	// Databases are the databases to serve, MaxDatabases at most. If nil, all that the
	// NATS server has at the start, at least one.
	Databases []schema.DatabaseName
	// 127.0.0.1:4222 if empty. The system chooses the port if it is 0: see Ready. Without users, an
	// address that is not Loopback needs NoAuth.
	Listen     string `flag:"accept NATS clients at [HOST:PORT], without credentials unless there are users"`
	NoAuth     bool   `flag:"let others than this machine connect without credentials: to --listen, and to what --nats-config opens"`
	NATSConfig string `flag:"add the accounts, users, TLS, leaf nodes, WebSocket and monitoring in [FILE], in NATS's syntax, to the embedded NATS server; SIGHUP reloads it"`
	// For them all works as it does without users.
	Users []User `flag:"let clients log in as NAME with the password in FILE, one line, or a bcrypt hash of it there: [NAME=FILE]; repeatable; nobody connects without a login then; SIGHUP reads it again"`
	// TLSCert and TLSKey are files with a certificate for TLS at Listen, and its key; "" for
	// none.
	TLSCert, TLSKey string
	NoTLS           bool   `flag:"let others than this machine log in at --listen without TLS"`
	OperatorNKey    string `flag:"let the user with this public [NKEY] back up, repair and restore the streams"`
	// External is the NATS server to use instead of an embedded one, which nil means.
	External *External
	// Served from before the databases are opened.
	Metrics string `flag:"serve /metrics (Prometheus), /healthz, /readyz and /status at [HOST:PORT] over HTTP"`
	// The file of a process that was killed is replaced.
	HealthSocket string `flag:"serve /healthz, /readyz and /status at the Unix socket [PATH], for healthchecks on this machine"`
	Profiles     bool   `flag:"serve Go's profiles and execution traces at --metrics, below /debug/pprof/"`
	// Console is the web console, which an External server cannot have.
	Console Console
	// Cosmos is the gateway for Cosmos DB's SDKs, which an External server cannot have. Where
	// the embedded server has users, or others than this machine can connect, it needs a Key.
	Cosmos Cosmos
	// Test makes Run serve databases in memory, whose clocks clients move, instead of
	// Databases; nil for none. It needs no StoreDir, and excludes External.
	Test *Test
	// Processor has the options of each database, with its defaults: durability,
	// retention, limits of queries, Logger and so on. Lease is for an External server; if
	// it is 0, no other process may serve the databases. Run sets Clock and Boot if Clock is
	// nil, and always AtomicBatch, ClientsApart, ClockFile, Database, Dir, Monitor, Node,
	// Progress and SameClock.
	Processor processor.Options
	// For an External server: the processes that serve the same databases there share them.
	Copies int `flag:"fold and serve each database by [N] of the processes (default all, while there is one database or there are two processes at most, else 2)"`
	// OwnProcess lets Run tune the whole process, as lapse serve does: garbage collection,
	// memory limit and GOMAXPROCS, unless the environment sets them. SIGUSR1 then accepts
	// the clock as it is, and SIGHUP reads files again, if Reloadable; else lapse serve
	// ends at it as at SIGTERM.
	OwnProcess bool
	// Events receives what happens, from several goroutines; nil for nobody. Run waits
	// until it returns.
	Events func(Event)
}

// User is a user of the embedded server, whose password is in a file.
type User = embedded.User

// External is a NATS server outside of Run.
type External struct {
	// Connect opens a connection, with address and login of its own and these options.
	// Run closes it. name is one of the names of connections: each may be a NATS user with
	// permissions of its own.
	Connect func(name string, options ...nats.Option) (*nats.Conn, error)
	// Gate lets clients without permissions on the streams read the log, through the
	// connections GateLog and GateClients, which belong to two accounts.
	Gate bool
}

// Names of connections to an External server.
const (
	LogConnection         = "log"          // appends to the log and manages the streams
	BulkConnection        = "bulk"         // reads the log
	ServiceConnection     = "service"      // answers requests; one for each database
	GateLogConnection     = "gate-log"     // forwards JetStream requests of clients to the streams
	GateClientsConnection = "gate-clients" // receives those requests
)

// MaxDatabases is the limit for one process: clients list streams in pages of 256, and the
// gate may have 2048 subscriptions, of which it needs four for each database.
const MaxDatabases = 128

// OptionsError is an error that other Options avoid, and trying again does not: exit 2 of
// lapse serve.
type OptionsError struct{ message string }

func (e *OptionsError) Error() string { return e.message }

func optionsErrorf(format string, args ...any) error {
	return &OptionsError{fmt.Sprintf(format, args...)}
}

// Check returns an *OptionsError for options that do not go together. Run checks them, too.
// It changes nothing and starts nothing, so `lapse config` calls it. Errors name the flags
// of lapse serve, since a library's user has the same words in Options.
func (o Options) Check() error {
	switch {
	case len(o.Databases) > MaxDatabases:
		return optionsErrorf("--database: %d databases: serve at most %d in one process", len(o.Databases), MaxDatabases)
	case o.External == nil && o.Processor.Replicas > 1:
		return optionsErrorf("--replicas %d: the embedded NATS server is one; give --nats-url of a cluster", o.Processor.Replicas)
	case o.External != nil && o.NATSConfig != "":
		return optionsErrorf("--nats-config is for the embedded NATS server: configure the one of --nats-url or --context itself")
	case o.External != nil && o.Users != nil:
		return optionsErrorf("--user is for the embedded NATS server: add users to the one of --nats-url or --context itself")
	case o.External != nil && o.OperatorNKey != "":
		return optionsErrorf("--operator-nkey is for the embedded NATS server: add the user to the one of --nats-url or --context itself")
	case o.External != nil && o.Console.Address != "":
		return optionsErrorf("--console %s: serve has a console with the embedded NATS server only: run `lapse console` beside it", o.Console.Address)
	case o.External != nil && o.Cosmos.URL != "":
		return optionsErrorf("--cosmos %s: serve has a gateway with the embedded NATS server only: run `lapse cosmos` beside it", o.Cosmos.URL)
	case o.External == nil && o.Processor.ReadOnly:
		return optionsErrorf("--weight 0: no other process can write the databases of an embedded NATS server: give --nats-url")
	case o.External == nil && o.Copies > 0:
		return optionsErrorf("--copies %d: no other process can serve the databases of an embedded NATS server: give --nats-url", o.Copies)
	case o.External != nil && o.Test != nil:
		return optionsErrorf("a test's databases are on the embedded NATS server: leave the external one out")
	case o.Profiles && o.Metrics == "":
		return optionsErrorf("--debug without --metrics: give the address to serve profiles at")
	}
	if err := o.checkAddresses(); err != nil || o.External != nil {
		return err
	}
	return o.checkEmbedded()
}

// checkAddresses returns an error for an address that looks like IPv4 and is none, such as
// 127.0.0.256, which would be looked up as a name, and for two that are the same: port 0
// never is. What else is wrong with an address, listening finds out.
func (o Options) checkAddresses() error {
	type listener struct {
		flag, address, host string
		port                int
	}
	all := []listener{{flag: "--metrics", address: o.Metrics}, {flag: "--console", address: o.Console.Address}}
	if _, host, port, err := cosmos.ParseURL(o.Cosmos.URL); err == nil {
		all = append(all, listener{flag: "--cosmos", address: net.JoinHostPort(host, port)})
	}
	if o.External == nil {
		all = append(all, listener{flag: "--listen", address: cmp.Or(o.Listen, "127.0.0.1:4222")})
	}
	for i := range all {
		l := &all[i]
		host, port, err := net.SplitHostPort(l.address)
		if err != nil {
			continue
		}
		l.port, _ = strconv.Atoi(port)
		ip := net.ParseIP(host)
		switch {
		case host == "" || ip.IsUnspecified():
		case host == "localhost":
			l.host = "127.0.0.1"
		case ip == nil && strings.Trim(host, "0123456789.") == "":
			return optionsErrorf("%s %s: %s is no IP address: use HOST:PORT, like 127.0.0.1:4222", l.flag, l.address, host)
		default:
			l.host = host
		}
		for _, other := range all[:i] {
			if l.port > 0 && l.port == other.port && (l.host == other.host || l.host == "" || other.host == "") {
				return optionsErrorf("%s %s and %s %s are the same address: give each a port of its own", l.flag, l.address, other.flag, other.address)
			}
		}
	}
	return nil
}

// checkEmbedded checks the configuration of the embedded NATS server, and that nobody
// beyond this machine connects without credentials, unless NoAuth.
func (o Options) checkEmbedded() (err error) {
	switch {
	case o.Databases != nil:
	case o.NATSConfig == "":
		o.Databases = []schema.DatabaseName{"main"} // which ones makes no difference
	default:
		if o.Databases, err = storedDatabases(cmp.Or(o.StoreDir, "data")); err != nil {
			return err
		}
	}
	if err := o.embedded().Check(); err != nil {
		return optionsErrorf("%v", err)
	}
	if o.Cosmos.URL == "" || o.Cosmos.Key != "" {
		return nil
	}
	if users, err := o.embedded().HasUsers(); err != nil || users {
		return optionsErrorf("--cosmos %s: the NATS server has users, so the gateway needs a key of its own: give --cosmos-key-file FILE", o.Cosmos.URL)
	}
	return nil
}

// Reloadable reports whether SIGHUP has files of the embedded NATS server to read again.
func (o Options) Reloadable() bool {
	return o.External == nil && (o.NATSConfig != "" || o.Users != nil || o.TLSCert != "")
}

// embedded returns the options of the embedded NATS server that both Check and Run know.
func (o Options) embedded() embedded.Options {
	return embedded.Options{StoreDir: o.StoreDir, Memory: o.Test != nil, Listen: o.Listen, NoAuth: o.NoAuth, Config: o.NATSConfig, Operator: o.OperatorNKey, Databases: o.Databases,
		Users: o.Users, CertFile: o.TLSCert, KeyFile: o.TLSKey, NoTLS: o.NoTLS, Unread: memory.Of().Unread}
}

// Loopback reports whether only programs on this machine can connect to address, a
// HOST:PORT. A host name other than localhost may mean any interface.
func Loopback(address string) bool { return embedded.Loopback(address) }

// ReadSecret returns the only line of a file with a password, token or key, without space
// around it.
func ReadSecret(name string) (string, error) { return embedded.ReadSecret(name) }

// ReadPassword is ReadSecret of a file that nobody but its owner and group may read, and
// nobody but its owner write.
func ReadPassword(name string) (string, error) { return embedded.ReadPassword(name) }

// CheckFile returns an error if a library must not read a file that a user names: it is not
// a regular file, or it has more than 1 MiB. A file that does not exist is no error.
func CheckFile(name string) error { return embedded.CheckFile(name) }

func (o Options) ensureDefaults() Options {
	o.StoreDir = cmp.Or(o.StoreDir, "data")
	if o.Test != nil {
		o.Databases = []schema.DatabaseName{gate.AnyDatabase}
	}
	o.Processor.Logger = cmp.Or(o.Processor.Logger, slog.New(slog.DiscardHandler))
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	return o
}
