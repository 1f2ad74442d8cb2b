package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos"
	"github.com/lapsedb/lapse/host"
)

// cosmosFlags are the flags of the gateway for Cosmos DB's SDKs, for serve, test and
// cosmos. They implement "Who may" of the contract's section 15: the well-known key, which
// everybody knows, serves only where everybody who can connect may do so anyway.
type cosmosFlags struct {
	url     string
	keyFile string
	hosts   []string
	cert    string
	certKey string
	certOut string
}

// addURL adds the flag with the address.
func (f *cosmosFlags) addURL(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "cosmos", "", flagText[host.Cosmos]("URL"))
}

func (f *cosmosFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.keyFile, "cosmos-key-file", "", flagText[host.Cosmos]("Key"))
	flags.StringSliceVar(&f.hosts, "cosmos-host", nil, flagText[host.Cosmos]("Hosts"))
	flags.StringVar(&f.cert, "cosmos-cert", "", flagText[host.Cosmos]("CertFile"))
	flags.StringVar(&f.certKey, "cosmos-cert-key", "", flagText[host.Cosmos]("KeyFile"))
	flags.StringVar(&f.certOut, "cosmos-cert-out", "", flagText[host.Cosmos]("CertOut"))
}

// options returns the gateway that the flags ask for; its zero value is none. anyAddress lets the
// well-known key serve on any address. Everything that can be checked without listening is,
// as wrong usage.
func (f *cosmosFlags) options(anyAddress bool) (c host.Cosmos, err error) {
	if f.url == "" {
		for name, given := range map[string]bool{"--cosmos-key-file": f.keyFile != "", "--cosmos-host": f.hosts != nil, "--cosmos-cert": f.cert != "", "--cosmos-cert-key": f.certKey != "", "--cosmos-cert-out": f.certOut != ""} {
			if given {
				return c, usageErrorf("%s without --cosmos: give the URL of the gateway, like https://localhost:8081", name)
			}
		}
		return c, nil
	}
	scheme, hostname, port, err := cosmos.ParseURL(f.url)
	switch {
	case err != nil:
		return c, usageErrorf("--cosmos: %v", err)
	case (f.cert == "") != (f.certKey == ""):
		return c, usageErrorf("--cosmos-cert and --cosmos-cert-key belong together: give both")
	case slices.ContainsFunc(f.hosts, func(name string) bool { return strings.ContainsAny(name, ":/") && net.ParseIP(name) == nil }):
		return c, usageErrorf("--cosmos-host %s: give names without a port, like db.example.net", strings.Join(f.hosts, ","))
	case scheme == "http" && (f.cert != "" || f.certOut != ""):
		return c, usageErrorf("--cosmos %s: http has no certificate: use https, or leave --cosmos-cert and --cosmos-cert-out out", f.url)
	}
	if err := checkAddress("--cosmos", net.JoinHostPort(hostname, port)); err != nil {
		return c, err
	}
	c.Address = cosmos.Address{URL: f.url, Hosts: f.hosts, CertFile: f.cert, KeyFile: f.certKey, CertOut: f.certOut}
	c.Key, err = f.key(anyAddress || host.Loopback(net.JoinHostPort(hostname, port)))
	return c, err
}

// key reads the account key. "" is the well-known one, where all who can connect may know
// it. The key file is read by ReadSecret: its mode is the user's business, as that of the
// console's token.
func (f *cosmosFlags) key(anyAddress bool) (string, error) {
	if f.keyFile == "" {
		if !anyAddress {
			return "", usageErrorf("--cosmos %s: others can connect there, so the gateway needs a key of its own: give --cosmos-key-file FILE, or an address like https://localhost:8081", f.url)
		}
		return "", nil
	}
	key, err := host.ReadSecret(f.keyFile)
	if err != nil {
		return "", fmt.Errorf("--cosmos-key-file: %w", err)
	}
	if err := cosmos.CheckKey(key); err != nil {
		return "", usageErrorf("--cosmos-key-file %s: %v", f.keyFile, err)
	}
	return key, nil
}

func newCosmosCommand(a *app) *cobra.Command {
	var conn connection
	var f cosmosFlags
	cmd := &cobra.Command{
		Use:   "cosmos URL",
		Short: "Serve databases to programs with an SDK of Azure Cosmos DB",
		Long: `cosmos serves the protocol of Azure Cosmos DB's API for NoSQL at URL, http://HOST:PORT or
https://HOST:PORT, until interrupted, for all databases that the connection flags reach, or
for the one of --database. It creates and deletes containers and items, but no databases. lapse serve and
lapse test have a gateway of their own: --cosmos.`,
		Example: `  lapse cosmos https://localhost:8081 --cosmos-cert-out cert.pem
  lapse cosmos https://0.0.0.0:8081 --cosmos-key-file key --context prod`,
		Args: arguments(1, 1),
	}
	conn.addFlags(cmd)
	f.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.url = args[0]
		options, err := f.options(false)
		if err != nil {
			return err
		}
		// Found by flags alone, before anything connects.
		if options.Key == "" && (conn.creds != "" || conn.nkey != "" || conn.passwordFile != "" || conn.cert != "") {
			return needsKey()
		}
		return a.cosmos(cmd.Context(), options, conn, cmd.Flags().Changed("database"))
	}
	return cmd
}

// cosmos serves the gateway until ctx ends; only says that it has the one database of conn.
func (a *app) cosmos(ctx context.Context, options host.Cosmos, conn connection, only bool) error {
	lapse, hangUp, err := conn.connect(ctx, a.connectionNotices()...)
	if err != nil {
		return err
	}
	defer hangUp()
	// The flags were checked before; a URL or context shows its login only now.
	if options.Key == "" && hasLogin(lapse.Conn().Opts) {
		return needsKey()
	}
	log := a.openLog(logFlags{})
	defer log.close()
	served, err := options.Listen(true, log.Logger)
	if err != nil {
		return err
	}
	defer served.Close()
	stop, err := served.Serve(cosmos.Options{
		Connect: func(database string) (*client.Client, func(), error) {
			if only && database != conn.database {
				return nil, nil, client.ErrDatabaseNotFound.With("database %s is not the one of --database", database)
			}
			// A connection for each database: a copy of the flags with another name.
			its := conn
			its.database = database
			return its.dial(a.connectionNotices())
		},
		Databases: func(ctx context.Context) ([]string, error) {
			if only {
				return []string{conn.database}, nil
			}
			return databasesOf(ctx, lapse)
		},
	}, log.Logger)
	if err != nil {
		return err
	}
	defer stop()
	log.ready(fmt.Sprintf("databases at %s, for SDKs of Cosmos DB: %s", lapse.Conn().ConnectedUrlRedacted(), served.Serving()), "")
	<-ctx.Done()
	return nil
}

// needsKey is the error of a gateway that would lend its credentials to everybody.
func needsKey() error {
	return usageErrorf("cosmos connects with credentials, which the gateway's users get the use of: give --cosmos-key-file FILE")
}

// hasLogin reports whether a connection has credentials or a client certificate, from a URL or
// a context, too.
func hasLogin(o nats.Options) bool {
	return o.User != "" || o.Token != "" || o.Nkey != "" || o.UserJWT != nil || o.TLSCertCB != nil ||
		slices.ContainsFunc(slices.Concat(o.Servers, []string{o.Url}), func(server string) bool { return strings.Contains(server, "@") })
}

// databasesOf lists the databases that processes serve.
func databasesOf(ctx context.Context, lapse *client.Client) (names []string, err error) {
	all, err := lapse.AllProcesses(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		names = append(names, p.Database)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
