package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
)

// A process that serves databases on an external NATS server has up to five connections,
// each with a user of its own, whose permissions it needs and no more: log (appends,
// streams), bulk (reads of the log), service (requests), and for a gate gate-log and
// gate-clients, in two accounts. --creds, --nkey and --context therefore take
// [CONNECTION=]VALUE: a value without a name is for all connections that have none of their
// own.
//
//	--nkey log=processor.nk --nkey bulk=bulk.nk --nkey service=service.nk
//	--creds lapse.creds
//
// Package host knows none of this. It calls External.Connect with the name of a connection,
// and gets one or an error that says which flag to change.

// externalFlags say how to reach an external NATS server.
type externalFlags struct {
	url           string
	logins        map[string]login // by connection; "" for connections that are not named
	ca, cert, key string
	serves        bool // without an external server, cert and key are those of the embedded one
}

// login is the login of a connection.
//
// value is a file, or the name of a context.
type login struct{ way, value string } // way is the name of the flag, "" without credentials

// connectionNames are the connections of lapse; the gate's, which are optional, come last.
var connectionNames = []string{host.LogConnection, host.BulkConnection, host.ServiceConnection, host.GateLogConnection, host.GateClientsConnection}

func (f *externalFlags) addFlags(flags *pflag.FlagSet) {
	f.logins = map[string]login{}
	flags.StringVar(&f.url, "nats-url", "", "use the NATS servers at `URL`[,URL…] instead of an embedded one")
	flags.Var(&loginFlag{"creds", f.logins}, "creds", "log in with the credentials in `[CONNECTION=]FILE`; CONNECTION is one of "+strings.Join(connectionNames, ", ")+" (default all)")
	flags.Var(&loginFlag{"nkey", f.logins}, "nkey", "log in with the nkey seed in `[CONNECTION=]FILE`")
	flags.Var(&loginFlag{"context", f.logins}, "context", "use the URL and login of a context of the nats command: `[CONNECTION=]NAME`")
	_ = flags.SetAnnotation("nats-url", listAnnotation, nil)
	addTLSFlags(flags, &f.ca, &f.cert, &f.key)
}

// loginFlag is a repeatable flag that logs in one connection, or all others. The flags
// --creds, --nkey and --context share the map, so that a connection has one login whichever
// flag names it.
type loginFlag struct {
	way    string
	logins map[string]login
}

func (f *loginFlag) Set(text string) error {
	connection, value, named := strings.Cut(text, "=")
	switch {
	case named && slices.Contains(connectionNames, connection):
	// A word before = that is no connection is refused, unless it looks like a path: it is
	// most likely a misspelt connection, which would else be silently used for all.
	case !named || strings.ContainsAny(connection, `./\`): // a path may contain a =
		connection, value = "", text
	default:
		return fmt.Errorf("there is no connection %s: use one of %s", connection, strings.Join(connectionNames, ", "))
	}
	if value == "" {
		return fmt.Errorf("the value for connection %s is empty: use CONNECTION=VALUE", connection)
	}
	if before, ok := f.logins[connection]; ok {
		if before.way == f.way {
			return fmt.Errorf("%s is given, too, for the same connections: leave one out", before.value)
		}
		if connection == "" {
			return fmt.Errorf("--%s is given, too: use one of them, or name a CONNECTION for each", before.way)
		}
		return fmt.Errorf("connection %s has more than one of --creds, --nkey and --context: give it one", connection)
	}
	f.logins[connection] = login{f.way, value}
	return nil
}

// String returns what was given this way, [CONNECTION=]VALUE of each, in order.
func (f *loginFlag) String() string {
	var given []string
	for connection, l := range f.logins {
		switch {
		case l.way != f.way:
		case connection == "":
			given = append(given, l.value)
		default:
			given = append(given, connection+"="+l.value)
		}
	}
	slices.Sort(given)
	return strings.Join(given, ",")
}

func (*loginFlag) Type() string { return "login" }

// login returns the login of a connection: its own, else that for all, else none.
func (f *externalFlags) login(connection string) login {
	if l, ok := f.logins[connection]; ok {
		return l
	}
	return f.logins[""]
}

// named reports whether a flag names the connection.
func (f *externalFlags) named(connection string) bool {
	_, ok := f.logins[connection]
	return ok
}

// given reports whether the flags name an external NATS server.
func (f *externalFlags) given() bool {
	for _, l := range f.logins {
		if l.way == "context" {
			return true
		}
	}
	return f.url != ""
}

// check returns a usage error for flags that do not go together. It reads no file and
// connects to nothing, so config can call it.
func (f *externalFlags) check() error {
	switch {
	case !f.given() && (len(f.logins) > 0 || f.ca != "" || f.cert != "" && !f.serves):
		return usageErrorf("--creds, --nkey and --tls-… are for an external NATS server: give --nats-url or --context, too")
	case f.url != "" && f.logins[""].way == "context":
		return usageErrorf("--nats-url and --context given: use one of them; a context has its own URL")
	case (f.cert == "") != (f.key == ""):
		return errHalfCertificate
	case f.named(host.GateLogConnection) != f.named(host.GateClientsConnection):
		return usageErrorf("connections gate-log and gate-clients go together, they are users of two accounts: name both, or neither")
	}
	for i, connection := range connectionNames {
		used := i < 3 || f.named(connection) // a gate is optional
		if f.given() && f.url == "" && used && f.login(connection).way != "context" {
			return usageErrorf("--context is given for some connections only: give one for %s, too, or --nats-url", connection)
		}
		if l := f.login(connection); used && l.way != "context" {
			if err := checkFiles(namedFile{l.way, l.value}); err != nil {
				return err
			}
		}
	}
	return checkFiles(namedFile{"tls-ca", f.ca}, namedFile{"tls-cert", f.cert}, namedFile{"tls-key", f.key})
}

// external returns the NATS server that the flags name; nil for an embedded one.
func (f *externalFlags) external() *host.External {
	if !f.given() {
		return nil
	}
	return &host.External{Connect: f.connect, Gate: f.named(host.GateLogConnection)}
}

// connect is Connect of host.External.
func (f *externalFlags) connect(name string, options ...nats.Option) (*nats.Conn, error) {
	options = append(options, tlsOptions(f.ca, f.cert, f.key)...)
	return insist(silenceTimeout, func() (*nats.Conn, error) { return f.dial(name, options) })
}

// insist retries connect within limit while the server is silent. nats.go waits 2 s, so
// that a lost connection soon tries the next server; a busy machine may need more. Any
// other error, such as a refusal, is final: waiting would not change it.
func insist[T any](limit time.Duration, connect func() (T, error)) (T, error) {
	for began := time.Now(); ; {
		made, err := connect()
		op, ok := errors.AsType[*net.OpError](err)
		if silent := ok && op.Timeout(); !silent || time.Since(began)+nats.DefaultTimeout > limit {
			return made, err
		}
	}
}

// silenceTimeout bounds the wait for a silent server.
const silenceTimeout = 8 * time.Second

// dial makes a connection with its login, or returns an error that names both.
func (f *externalFlags) dial(name string, options []nats.Option) (*nats.Conn, error) {
	l := f.login(name)
	nc, err := client.Dial(func(last nats.Option) (*nats.Conn, error) { return f.connectAs(l, append(options, last)) })
	if err != nil {
		return nil, f.connectError(name, l, err)
	}
	return nc, nil
}

// connectAs connects with a login. A context has its own URL, the other logins go to
// --nats-url.
func (f *externalFlags) connectAs(l login, options []nats.Option) (*nats.Conn, error) {
	switch l.way {
	case "context":
		nc, settings, err := natscontext.Connect(l.value, options...)
		if err == nil && (settings.JSDomain != "" || settings.JSAPIPrefix != "") {
			nc.Close()
			return nil, fmt.Errorf("NATS context %q has a JetStream domain or API prefix: lapse has to connect to the domain of the streams: use a context without either", l.value)
		}
		return nc, err
	case "nkey":
		option, err := nats.NkeyOptionFromSeed(l.value)
		if err != nil {
			return nil, err
		}
		options = append(options, option)
	case "creds":
		options = append(options, nats.UserCredentials(l.value))
	}
	return nats.Connect(f.url, options...)
}

// connectError adds to err where the connection failed, its login, and what to do.
func (f *externalFlags) connectError(name string, l login, err error) error {
	where, from := client.Redacted(strings.Split(f.url, ",")), "--nats-url"
	if f.url == "" {
		where = fmt.Sprintf("NATS context %q", l.value)
		from = where
	}
	with := "gives no credentials"
	if l.way != "" {
		with = fmt.Sprintf("has --%s %s", l.way, l.value)
	}
	switch {
	case errors.Is(err, client.ErrBadRequest):
		return usageErrorf("%s: %v", from, err)
	case errors.Is(err, nats.ErrNoInfoReceived):
		return fmt.Errorf("%s: %v", from, err) // without a code: it is no reply
	case client.IsLogin(err):
		return fmt.Errorf("NATS at %s refuses the connection %s, which %s (%w): give --creds, --nkey or --context of a user of that server", where, name, with, err)
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("no NATS server answers at %s (%w): start one there, or give another --nats-url", where, err)
	}
	return fmt.Errorf("cannot connect to %s for %s, which %s: %w: see --nats-url, --creds, --nkey and --context", where, name, with, err)
}
