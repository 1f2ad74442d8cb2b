package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
)

// elsewhereFlags say how to reach a NATS that is not ours.
type elsewhereFlags struct {
	url                    string
	creds, nkeys, contexts []string // [CONNECTION=]VALUE
	ca, cert, key          string
	empty                  bool // the URL was given and is ""
}

// Connections of lapse, each of which may be another user with other rights.
const (
	logConnection         = "log"          // appends, and looks after the streams
	bulkConnection        = "bulk"         // reads the log
	serviceConnection     = "service"      // answers requests
	gateLogConnection     = "gate-log"     // passes JetStream requests of clients on
	gateClientsConnection = "gate-clients" // takes them
)

var connectionNames = []string{logConnection, bulkConnection, serviceConnection, gateLogConnection, gateClientsConnection}

func (f *elsewhereFlags) addFlags(flags *pflag.FlagSet) {
	names := strings.Join(connectionNames, ", ")
	flags.StringVar(&f.url, "nats-url", "", "use the NATS servers at `URL`[,URL…] instead of an embedded one")
	flags.StringArrayVar(&f.creds, "creds", nil, "log in with the credentials `[CONNECTION=]FILE`; CONNECTION is one of "+names+" (default all)")
	flags.StringArrayVar(&f.nkeys, "nkey", nil, "log in with the nkey seed `[CONNECTION=]FILE`")
	flags.StringArrayVar(&f.contexts, "context", nil, "use the NATS context `[CONNECTION=]NAME` of the nats command, with its URL")
	flags.StringVar(&f.ca, "tls-ca", "", "trust the CA certificates in `FILE`")
	flags.StringVar(&f.cert, "tls-cert", "", "present the client certificate in `FILE`")
	flags.StringVar(&f.key, "tls-key", "", "`FILE` with the key of --tls-cert")
}

// given tells whether NATS is elsewhere.
func (f *elsewhereFlags) given() bool { return f.url != "" || len(f.contexts) > 0 }

// check returns a usage error for what does not go together.
func (f *elsewhereFlags) check() error {
	_, _, byContext := pick(f.contexts, "")
	switch {
	case f.empty:
		return usageErrorf("--nats-url is empty: give the URL of a NATS server, or leave it out for the embedded one")
	case !f.given() && (len(f.creds) > 0 || len(f.nkeys) > 0 || f.ca != "" || f.cert != ""):
		return usageErrorf("--creds, --nkey and --tls-… are for a NATS elsewhere: give --nats-url or --context, too")
	case f.url != "" && byContext:
		return usageErrorf("--nats-url and --context given: use one of them; a context has its own URL")
	case f.url == "" && f.given() && !byContext && !f.allByContext():
		return usageErrorf("--context is given for some connections only: give one for all others, without CONNECTION=, or --nats-url")
	case (f.cert == "") != (f.key == ""):
		return usageErrorf("--tls-cert and --tls-key go together: give both")
	}
	if f.named(gateLogConnection) != f.named(gateClientsConnection) {
		return usageErrorf("connections gate-log and gate-clients go together, they are users of two accounts: name both, or neither")
	}
	for _, one := range slices.Concat(f.creds, f.nkeys, f.contexts) {
		of, _, named := strings.Cut(one, "=")
		if named && !slices.Contains(connectionNames, of) && !strings.ContainsAny(of, "./\\") {
			return usageErrorf("%s: there is no connection %s: use one of %s", one, of, strings.Join(connectionNames, ", "))
		}
	}
	for _, name := range connectionNames {
		ways := 0
		for _, values := range [][]string{f.creds, f.nkeys, f.contexts} {
			if _, named, _ := pick(values, name); named {
				ways++
			}
		}
		if ways > 1 {
			return usageErrorf("connection %s has more than one of --creds, --nkey and --context: give it one", name)
		}
	}
	return nil
}

func (f *elsewhereFlags) allByContext() bool {
	return !slices.ContainsFunc(connectionNames[:3], func(name string) bool {
		_, named, _ := pick(f.contexts, name)
		return !named
	})
}

// pick finds the value for a connection: the one that names it, or the one that
// names none.
func pick(values []string, connection string) (value string, named, general bool) {
	for _, one := range values {
		of, rest, ok := strings.Cut(one, "=")
		switch {
		case ok && of == connection:
			return rest, true, false
		case !ok || !slices.Contains(connectionNames, of):
			value, general = one, true
		}
	}
	return value, false, general
}

// connect makes one of the connections.
func (f *elsewhereFlags) connect(name string, database schema.DatabaseName, logger *slog.Logger) (*nats.Conn, error) {
	options := append(eventlog.ConnectOptions(),
		nats.Name(fmt.Sprintf("lapse %s %s", database, name)),
		nats.CustomInboxPrefix(inboxPrefix(name)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !errors.Is(err, nats.ErrSlowConsumer) { // who is told again what it missed
				logger.Warn("nats: "+err.Error(), "connection", name)
			}
		}))
	if name == gateLogConnection || name == gateClientsConnection { // the processor watches its own
		options = append(options,
			nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
				if !nc.IsClosed() {
					logger.Warn("the connection to NATS is lost", "connection", name, "err", err)
				}
			}),
			nats.ReconnectHandler(func(nc *nats.Conn) {
				logger.Info("the connection to NATS is back", "connection", name, "url", nc.ConnectedUrlRedacted())
			}))
	}
	if f.ca != "" {
		options = append(options, nats.RootCAs(f.ca))
	}
	if f.cert != "" {
		options = append(options, nats.ClientCert(f.cert, f.key))
	}
	way, value := f.login(name)
	var nc *nats.Conn
	var err error
	switch way {
	case "context":
		var settings natscontext.Settings
		nc, settings, err = natscontext.Connect(value, options...)
		if err == nil && (settings.JSDomain != "" || settings.JSAPIPrefix != "") {
			nc.Close()
			return nil, fmt.Errorf("NATS context %q has a JetStream domain or API prefix: lapse serves where the streams are, use a context for that server", value)
		}
	case "nkey":
		var option nats.Option
		if option, err = nats.NkeyOptionFromSeed(value); err == nil {
			nc, err = nats.Connect(f.url, append(options, option)...)
		}
	case "creds":
		nc, err = nats.Connect(f.url, append(options, nats.UserCredentials(value))...)
	default:
		nc, err = nats.Connect(f.url, options...)
	}
	if err != nil {
		return nil, f.connectError(name, way, value, err)
	}
	return nc, nil
}

// login says how a connection logs in: by what names it, then by what names none.
func (f *elsewhereFlags) login(name string) (way, value string) {
	ways := []struct {
		way    string
		values []string
	}{{"creds", f.creds}, {"nkey", f.nkeys}, {"context", f.contexts}}
	for _, one := range ways {
		if value, named, _ := pick(one.values, name); named {
			return one.way, value
		}
	}
	for _, one := range ways {
		if value, _, general := pick(one.values, name); general {
			return one.way, value
		}
	}
	return "", ""
}

// named tells whether any flag names a connection.
func (f *elsewhereFlags) named(name string) bool {
	for _, values := range [][]string{f.creds, f.nkeys, f.contexts} {
		if _, named, _ := pick(values, name); named {
			return true
		}
	}
	return false
}

// inboxPrefix is where a connection gets its answers. What is sent to _INBOX. in
// the account of the streams may be passed on to clients; the other names say to
// an operator who listens.
func inboxPrefix(name string) string {
	prefix := "_PROCESSOR."
	switch name {
	case bulkConnection: // may not know what the log's is told
		prefix = "_BULK."
	case serviceConnection:
		prefix = "_SERVICE."
	case gateLogConnection, gateClientsConnection:
		return "_GATE"
	}
	return prefix + rand.Text()
}

// connectError says what to do.
func (f *elsewhereFlags) connectError(name, way, value string, err error) error {
	where := cmp.Or(redactedURLs(f.url), fmt.Sprintf("NATS context %q", value))
	with := "gives no credentials"
	if way != "" {
		with = fmt.Sprintf("has --%s %s", way, value)
	}
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Errorf("NATS at %s refuses the connection %s, which %s (%w): give --creds, --nkey or --context of a user that it knows", where, name, with, err)
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("nobody answers at %s (%w): start NATS there, or give another --nats-url", where, err)
	}
	return fmt.Errorf("cannot connect to %s for %s, which %s: %w: see --nats-url, --creds, --nkey and --context", where, name, with, err)
}

// redactedURLs are URLs without passwords.
func redactedURLs(urls string) string {
	all := strings.Split(urls, ",")
	for i, one := range all {
		if scheme, rest, ok := strings.Cut(one, "://"); ok {
			if at := strings.LastIndexByte(rest, '@'); at >= 0 {
				all[i] = scheme + "://" + rest[at+1:]
			}
		}
	}
	return strings.Join(all, ",")
}

// nodeName reads what names this lapse over restarts, or makes it up.
func nodeName(storeDir string) (string, error) {
	path := filepath.Join(storeDir, "node")
	text, err := os.ReadFile(path)
	if name := strings.TrimSpace(string(text)); err == nil && name != "" {
		return name, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("cannot read %s: %w; choose another --store-dir", path, err)
	}
	name := rand.Text()
	if err := os.WriteFile(path, []byte(name+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("cannot write to the store directory %s: %w; choose another one with --store-dir", storeDir, err)
	}
	return name, nil
}
