package client

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/schema"
)

const (
	defaultDatabase = "main"
	defaultTimeout  = 5 * time.Second
)

// Client is a client of one database, safe for concurrent use. Close it when done.
type Client struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	owned    bool // nc was made by Connect
	url      string
	database schema.DatabaseName
	timeout  time.Duration

	heartbeat  time.Duration // of ordered consumers
	standstill time.Duration

	denials denials
	absent  absentWriter

	limitsOf atomic.Uint64 // the number of the connect whose max_payload is known, from 1 on

	tracer Tracer // nil for none

	session bool          // see WithReadYourWrites
	lastSeq atomic.Uint64 // highest sequence in a reply
}

type options struct {
	database string
	timeout  time.Duration
	domain   string
	prefix   string
	session  bool
	tracer   Tracer
	nats     []nats.Option

	heartbeat, standstill time.Duration
}

// Option configures a Client.
type Option func(*options)

// WithDatabase sets the database; the default is main.
func WithDatabase(name string) Option { return func(o *options) { o.database = name } }

// WithTimeout sets the timeout of requests whose context has no deadline; the default
// is 5 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithCreds names the credentials file for Connect; New ignores it.
func WithCreds(file string) Option { return WithNATSOptions(nats.UserCredentials(file)) }

// WithNATSOptions adds any options of nats.go for the connection that Connect makes; New
// ignores them.
func WithNATSOptions(opts ...nats.Option) Option {
	return func(o *options) { o.nats = append(o.nats, opts...) }
}

// WithJetStreamDomain sets the JetStream domain of the log, if it differs from that of
// the connection, for users of the account of the log. Clients of lapse read the log through
// its gate, which has no domain.
func WithJetStreamDomain(domain string) Option { return func(o *options) { o.domain = domain } }

// APIPrefix sets the subject below which the account imports the API of the JetStream that
// has the log, such as LAPSE.API, if it is in another account. Readers without a Durable
// then have events pushed to an inbox, so connect with nats.CustomInboxPrefix and the
// prefix that the account imports as a stream. Each Durable needs an import of its own.
func APIPrefix(prefix string) Option {
	return func(o *options) { o.prefix = strings.TrimSuffix(prefix, ".") }
}

// WithReadYourWrites makes every read include the earlier writes and reads of this
// client, whichever process answers. Without it, a read from a standby may lag.
func WithReadYourWrites() Option { return func(o *options) { o.session = true } }

// Connect connects to the NATS server at address. It fails with ErrUnavailable if no
// server answers, or another one than NATS, and with ErrBadRequest for an address such as
// http://host; later the connection reconnects for ever, also
// if its login is refused: WithCreds reads the file again. Close closes it.
func Connect(address string, opts ...Option) (*Client, error) {
	o := apply(opts)
	silent := func(*nats.Conn, *nats.Subscription, error) {} // New adds a handler for denials of the client's own calls
	with := append([]nats.Option{nats.Name("lapse client"), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ErrorHandler(silent)}, o.nats...)
	nc, err := Dial(func(last nats.Option) (*nats.Conn, error) { return nats.Connect(address, append(with, last)...) })
	if err != nil {
		return nil, (&Client{url: Redacted(strings.Split(address, ","))}).transportError(err)
	}
	c, err := New(nc, opts...)
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.owned = true
	return c, nil
}

// New returns a client over a connection that the caller owns and closes. It adds to the
// connection's error handler, which reports missing permissions: make one client for
// each connection and database, and set a handler before New.
func New(nc *nats.Conn, opts ...Option) (*Client, error) {
	o := apply(opts)
	database, err := schema.ParseDatabaseName(o.database)
	if err != nil {
		return nil, err
	}
	c := &Client{nc: nc, url: nc.ConnectedUrlRedacted(), database: database, timeout: o.timeout, heartbeat: o.heartbeat, standstill: o.standstill, tracer: o.tracer, session: o.session}
	withTimeout := jetstream.WithDefaultTimeout(o.timeout)
	switch {
	case o.domain != "" && o.prefix != "":
		return nil, ErrBadRequest.With("a JetStream domain (%s) and an API prefix (%s) are given: use one of them", o.domain, o.prefix)
	case o.prefix != "":
		if nats.CustomInboxPrefix(o.prefix)(new(nats.Options)) != nil { // has the same rules
			return nil, ErrBadRequest.With("the JetStream API prefix %q is not legal: use subject tokens such as LAPSE.API, without wildcards or a final dot", o.prefix)
		}
		c.js, err = jetstream.NewWithAPIPrefix(nc, o.prefix, withTimeout)
	case o.domain != "":
		c.js, err = jetstream.NewWithDomain(nc, o.domain, withTimeout)
	default:
		c.js, err = jetstream.New(nc, withTimeout)
	}
	if err != nil {
		return nil, c.feedError(err)
	}
	c.denials.listen(nc)
	return c, nil
}

// log returns the stream of the log.
func (c *Client) log() logread.Stream {
	return logread.Stream{JS: c.js, Name: c.database.LogStream()}
}

// api returns the prefix of JetStream's subjects.
func (c *Client) api() string { return logread.API(c.js) }

// importsLog reports whether the API of the log is that of another account.
func (c *Client) importsLog() bool { return c.js.Options().APIPrefix != "" }

func apply(opts []Option) options {
	o := options{database: defaultDatabase, timeout: defaultTimeout, heartbeat: logread.Heartbeat, standstill: standstill}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Close closes a connection that Connect made. Calls in flight then fail with
// ErrTimeout, later ones with ErrUnavailable.
func (c *Client) Close() {
	if c.owned {
		c.nc.Close()
	}
}

// Conn returns the client's connection; its owner does not change.
func (c *Client) Conn() *nats.Conn { return c.nc }

// Database returns the name of the client's database.
func (c *Client) Database() string { return string(c.database) }
