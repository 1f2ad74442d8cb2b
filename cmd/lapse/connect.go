package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/schema"
)

// How a client command reaches its database. The rules are those of the nats command, so
// that whoever uses one knows the other:
//
//   - The address: --server, else NATS_URL, else that of a context (--context, else
//     NATS_CONTEXT), else nats://127.0.0.1:4222. NATS_URL and NATS_CONTEXT together mean
//     the address of the one with the login of the other.
//   - The login: --creds, --nkey or --password-file, else that of the URL or context.
//   - --timeout bounds each request, and with silenceTimeout the attempt to connect.
//
// A command has one connection and ends with it. It reconnects without limit while it runs,
// since watch may run for weeks; a request that waits meanwhile ends by its own time-out.

// clientPingInterval is the ping interval of a command's connection. A connection that
// has not answered two pings is closed.
const clientPingInterval = 10 * time.Second

// connection holds the flags with which a client command reaches its database. The flags
// are persistent: a group such as collection adds them once, for its subcommands.
type connection struct {
	server, context, database string
	creds, nkey               string
	passwordFile              string
	inbox, api                prefixFlag
	ca, cert, key             string
	timeout                   time.Duration
}

// connectionHeading is the heading of the connection flags in the help.
const connectionHeading = "Connection"

// Environment variables of the nats command that name a server. Flags override them. The
// URL overrides that of the context, leaving only its login in use, as in that command.
const (
	serverVariable  = "NATS_URL"
	contextVariable = "NATS_CONTEXT"
)

// addFlags adds the flags of all client commands.
func (c *connection) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.SortFlags = false
	flags.StringVarP(&c.server, "server", "s", "", "`URL` of the NATS server (default $"+serverVariable+", or "+nats.DefaultURL+")")
	_ = flags.SetAnnotation("server", listAnnotation, nil)
	flags.StringVar(&c.context, "context", "", "use the URL and login of `NAME`, a context of the nats command, instead of --server (default $"+contextVariable+")")
	flags.StringVar(&c.creds, "creds", "", "log in with the credentials in `FILE`")
	flags.StringVar(&c.nkey, "nkey", "", "log in with the nkey seed in `FILE`")
	flags.StringVar(&c.passwordFile, "password-file", "", "log in with the password in `FILE`, as the user whose name the URL or the context has")
	flags.Var(&c.inbox, "inbox-prefix", "receive replies below `PREFIX`, which must be the one that the user's permissions name (default that of the context, or _INBOX)")
	flags.Var(&c.api, "js-api-prefix", "read the log by the JetStream API that the account imports at `PREFIX`, such as LAPSE.API, from another account (default that of the context); --inbox-prefix is then that of an imported stream")
	addTLSFlags(flags, &c.ca, &c.cert, &c.key)
	flags.StringVarP(&c.database, "database", "d", "main", "`NAME` of the database")
	durationVar(flags, &c.timeout, "timeout", 5*time.Second, 1, "wait at most `DURATION` for a reply")
}

// addTLSFlags adds the flags of a connection with TLS.
func addTLSFlags(flags *pflag.FlagSet, ca, cert, key *string) {
	flags.StringVar(ca, "tls-ca", "", "trust the CA certificates in `FILE`")
	flags.StringVar(cert, "tls-cert", "", "present the client certificate in `FILE`")
	flags.StringVar(key, "tls-key", "", "`FILE` with the key of --tls-cert")
}

// patient sets a longer default of --timeout, after addFlags. It is for requests whose work
// takes longer than an answer, such as a snapshot.
func (c *connection) patient(cmd *cobra.Command, timeout time.Duration) {
	c.timeout = timeout
	f := cmd.PersistentFlags().Lookup("timeout")
	f.DefValue = f.Value.String() // for the help
}

// patienceAtEnd is the time after the end of a command's context until it disconnects.
// Readers delete their consumers meanwhile, for which package client waits 2 s.
const patienceAtEnd = 3 * time.Second

// connect dials the server. The caller calls hangUp to disconnect; patienceAtEnd after ctx has ended
// it is called too, so that nothing waits for an unreachable server. Calling it twice is
// harmless.
func (c *connection) connect(ctx context.Context, opts ...nats.Option) (lapse *client.Client, hangUp func(), err error) {
	lapse, end, err := c.dial(opts)
	if err != nil {
		return nil, nil, err
	}
	release := context.AfterFunc(ctx, func() { time.AfterFunc(patienceAtEnd, end) })
	return lapse, func() { release(); end() }, nil
}

// dial connects without regard to a context: the connection lasts until the function that
// it returns is called. A login that NATS refuses aborts nothing later on
// (IgnoreAuthErrorAbort): credentials may be renewed while the command runs.
//
// The error says which of the two is wrong, flags (exit 2) or the way to the server (exit
// 1).
func (c *connection) dial(opts []nats.Option) (*client.Client, func(), error) {
	if _, err := schema.ParseDatabaseName(c.database); err != nil {
		return nil, nil, usageErrorf("--database: %v", err)
	}
	login, err := c.login()
	if err != nil {
		return nil, nil, err
	}
	opts = append([]nats.Option{nats.Name("lapse " + version), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.PingInterval(clientPingInterval),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, opts...) // the client reports errors of its calls
	server, name := c.server, c.context
	if server == "" && name == "" {
		server, name = os.Getenv(serverVariable), os.Getenv(contextVariable)
	}
	// natscontext.Connect takes the URL from the context, so this option replaces it.
	if server != "" && name != "" {
		opts = append(opts, func(o *nats.Options) error {
			o.Servers = strings.Split(server, ",")
			return nil
		})
	}
	opts = append(opts, login...)
	with := []client.Option{client.WithDatabase(c.database), client.WithTimeout(c.timeout), client.APIPrefix(string(c.api)), client.WithNATSOptions(opts...)}
	patience := min(c.timeout, silenceTimeout)
	if name == "" {
		lapse, err := insist(patience, func() (*client.Client, error) { return client.Connect(cmp.Or(server, nats.DefaultURL), with...) })
		if errors.Is(err, client.ErrBadRequest) {
			return nil, nil, usageErrorf("%v", err)
		}
		if err != nil {
			return nil, nil, err
		}
		return lapse, lapse.Close, nil
	}
	var settings natscontext.Settings
	nc, err := insist(patience, func() (nc *nats.Conn, err error) {
		return client.Dial(func(last nats.Option) (*nats.Conn, error) {
			nc, settings, err = natscontext.Connect(name, append(opts, last)...)
			return nc, err
		})
	})
	switch _, coded := errors.AsType[*client.Error](err); {
	case errors.Is(err, client.ErrBadRequest):
		return nil, nil, usageErrorf("NATS context %q: %v", name, err)
	case coded:
		return nil, nil, fmt.Errorf("NATS context %q: %w", name, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("NATS context %q: %w: list the contexts with `nats context ls`", name, err)
	}
	// A context may name a domain or a prefix of the API; --js-api-prefix replaces both.
	if c.api == "" {
		with = append(with, client.WithJetStreamDomain(settings.JSDomain), client.APIPrefix(settings.JSAPIPrefix))
	}
	lapse, err := client.New(nc, with...)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("NATS context %q: %w", name, err)
	}
	return lapse, nc.Close, nil
}

// prefixFlag is the prefix of reply subjects, or of JetStream's API; empty for the default.
// NATS's own check decides what is a prefix.
type prefixFlag string

func (f *prefixFlag) Set(text string) error {
	if nats.CustomInboxPrefix(text)(new(nats.Options)) != nil {
		return errors.New("give subject tokens such as _INBOX.auditor or LAPSE.API, without wildcards or a final dot")
	}
	*f = prefixFlag(text)
	return nil
}

func (f *prefixFlag) String() string { return string(*f) }
func (*prefixFlag) Type() string     { return "prefix" }

// login returns the options of the login flags, which replace the login of a context.
func (c *connection) login() (opts []nats.Option, err error) {
	switch {
	case c.server != "" && c.context != "":
		return nil, usageErrorf("--server and --context given: use one of them")
	case c.creds != "" && c.nkey != "":
		return nil, usageErrorf("--creds and --nkey given: use one of them")
	case c.passwordFile != "" && (c.creds != "" || c.nkey != ""):
		return nil, usageErrorf("--password-file, and --creds or --nkey given: use one of them")
	case (c.cert == "") != (c.key == ""):
		return nil, errHalfCertificate
	}
	if err := checkFiles(namedFile{"creds", c.creds}, namedFile{"nkey", c.nkey}, namedFile{"tls-ca", c.ca}, namedFile{"tls-cert", c.cert}, namedFile{"tls-key", c.key}); err != nil {
		return nil, err
	}
	// nats.go sends every login that it has, so that of the context has to go.
	if c.creds != "" || c.nkey != "" {
		opts = append(opts, func(o *nats.Options) error {
			o.User, o.Password, o.Token, o.Nkey, o.UserJWT, o.SignatureCB = "", "", "", "", nil, nil
			return nil
		})
	}
	if c.creds != "" {
		opts = append(opts, nats.UserCredentials(c.creds))
	}
	if c.nkey != "" {
		option, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, fmt.Errorf("--nkey %s: %w: give a file with the seed of a user", c.nkey, err)
		}
		opts = append(opts, option)
	}
	if c.passwordFile != "" {
		password, err := readPassword(c.passwordFile)
		if err != nil {
			return nil, err
		}
		opts = append(opts, withPassword(password))
	}
	if c.inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(string(c.inbox)))
	}
	return append(opts, tlsOptions(c.ca, c.cert, c.key)...), nil
}

var errHalfCertificate = usageErrorf("--tls-cert and --tls-key go together: give both")

// namedFile is a file that a flag names; path is empty without the flag.
type namedFile struct{ flag, path string }

// checkFiles returns a usage error for the first file that nats.go must not read: it would
// read a pipe or a device until it ends, which it need not.
func checkFiles(files ...namedFile) error {
	for _, f := range files {
		if err := host.CheckFile(f.path); err != nil {
			return usageErrorf("--%s %v", f.flag, err)
		}
	}
	return nil
}

// tlsOptions returns the options of the TLS flags.
func tlsOptions(ca, cert, key string) (opts []nats.Option) {
	if ca != "" {
		opts = append(opts, nats.RootCAs(ca))
	}
	if cert != "" {
		opts = append(opts, nats.ClientCert(cert, key))
	}
	return opts
}

// do connects, sends one request and returns the body of the reply.
func (c *connection) do(ctx context.Context, op, collection, id string, body []byte, opts ...client.RequestOption) ([]byte, error) {
	reply, err := c.request(ctx, op, collection, id, body, opts...)
	if err != nil {
		return nil, err
	}
	return reply.Body, nil
}

// ask is do for a reply that is read as a T, too. Commands print raw, which has what T does
// not know: a newer server may send more.
func ask[T any](ctx context.Context, c *connection, op, collection, id string, body []byte) (reply T, raw []byte, err error) {
	if raw, err = c.do(ctx, op, collection, id, body); err == nil {
		err = readReply(raw, &reply)
	}
	return reply, raw, err
}

// readReply reads a reply, or a part of it.
func readReply(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("the reply cannot be read: %w", err)
	}
	return nil
}

// request connects and sends one request.
func (c *connection) request(ctx context.Context, op, collection, id string, body []byte, opts ...client.RequestOption) (*client.Reply, error) {
	lapse, hangUp, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	return lapse.Do(ctx, op, collection, id, body, opts...)
}
