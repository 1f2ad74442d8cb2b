package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/lapsedb/lapse/client"
)

// clientPingInterval is the ping interval of a command's connection. A connection that
// has not answered two pings is closed.
const clientPingInterval = 10 * time.Second

// connection holds the flags with which a client command reaches its database.
type connection struct {
	server, creds, context, database string
	timeout                          time.Duration
}

// connectionHeading is the heading of the connection flags in the help.
const connectionHeading = "Connection"

// addFlags adds the flags of all client commands.
func (c *connection) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.SortFlags = false
	flags.StringVarP(&c.server, "server", "s", "", "`URL` of the NATS server (default "+nats.DefaultURL+")")
	flags.StringVar(&c.creds, "creds", "", "log in with the credentials in `FILE`")
	flags.StringVar(&c.context, "context", "", "use the URL and login of `NAME`, a context of the nats command, instead of --server")
	flags.StringVarP(&c.database, "database", "d", "main", "`NAME` of the database")
	durationVar(flags, &c.timeout, "timeout", 5*time.Second, 1, "wait at most `DURATION` for a reply")
}

// patient sets a longer timeout, unless --timeout is given.
func (c *connection) patient(cmd *cobra.Command, timeout time.Duration) {
	if !cmd.Flags().Changed("timeout") {
		c.timeout = timeout
	}
}

// open connects. The caller calls hangUp to disconnect; when ctx ends it is called
// too, so that nothing waits for an unreachable server.
func (c *connection) open(ctx context.Context, opts ...nats.Option) (lapse *client.Client, hangUp func(), err error) {
	lapse, end, err := c.dial(opts)
	if err != nil {
		return nil, nil, err
	}
	release := context.AfterFunc(ctx, end)
	return lapse, func() { release(); end() }, nil
}

func (c *connection) dial(opts []nats.Option) (*client.Client, func(), error) {
	opts = append(opts, nats.Name("lapse "+version), nats.MaxReconnects(-1), nats.PingInterval(clientPingInterval))
	if c.creds != "" {
		opts = append(opts, nats.UserCredentials(c.creds))
	}
	with := []client.Option{client.WithDatabase(c.database), client.WithTimeout(c.timeout), client.WithNATSOptions(opts...)}
	if c.context == "" {
		lapse, err := client.Connect(cmp.Or(c.server, nats.DefaultURL), with...)
		if err != nil {
			return nil, nil, err
		}
		return lapse, lapse.Close, nil
	}
	if c.server != "" {
		return nil, nil, usageErrorf("--server and --context given: use one of them")
	}
	nc, settings, err := natscontext.Connect(c.context, opts...)
	if err != nil {
		return nil, nil, fmt.Errorf("NATS context %q: %w: list the contexts with `nats context ls`", c.context, err)
	}
	lapse, err := client.New(nc, append(with, client.WithJetStreamDomain(settings.JSDomain))...)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return lapse, nc.Close, nil
}

// do connects, sends one request and returns the body of the reply.
func (c *connection) do(ctx context.Context, op, collection, id string, body []byte, opts ...client.RequestOption) ([]byte, error) {
	lapse, hangUp, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	reply, err := lapse.Do(ctx, op, collection, id, body, opts...)
	if err != nil {
		return nil, err
	}
	return reply.Body, nil
}
