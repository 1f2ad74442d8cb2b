package host

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
	"github.com/lapsedb/lapse/webserver"
)

// The console of lapse serve is a client of the embedded server like any other, with the
// permissions of clients. It is one address for all databases: at / with one, at /NAME/
// with several. Listening comes first and serving last: an address in use is found before a
// database opens, and a page is served only once the databases answer.

// Console says where a web console is served, and to whom.
type Console struct {
	Address string   `flag:"serve the web console at [HOST:PORT]"` // "" for no console
	Default bool     // nobody chose Address: go on without a console if it is in use
	Hosts   []string `flag:"let the console answer under the host [NAME], too; repeatable"`
	Token   string   `flag:"ask users of the console for the token in [FILE]; needed on addresses other than loopback"` // not its file; "" for none
}

// ConsoleServer is a console that listens, unless it has no address, or a default one that
// is in use. Close may be called in any case.
type ConsoleServer struct {
	Console
	URL      string       // for a browser; "" if it does not listen
	listener net.Listener // nil if it does not listen
	taken    error        // why it does not listen; nil if it has no address
}

// Listen listens, so that a wrong address is an error before anything starts. Its error
// says what to do. A default address that is in use is none: the ConsoleServer then does
// not listen, and warn says so.
func (c Console) Listen() (*ConsoleServer, error) {
	if c.Address == "" {
		return &ConsoleServer{}, nil
	}
	listener, err := webserver.Listen("tcp", c.Address)
	switch {
	case err != nil && c.Default:
		return &ConsoleServer{Console: c, taken: err}, nil
	case err != nil:
		return nil, fmt.Errorf("cannot serve the console at %s: %w: choose another address with --console HOST:PORT, or --console off", c.Address, err)
	}
	host, _, _ := net.SplitHostPort(c.Address)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	c.Hosts = append([]string{host}, c.Hosts...)
	url := "http://" + net.JoinHostPort(host, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	return &ConsoleServer{Console: c, URL: url, listener: listener}, nil
}

// Close ends a console that is not served yet.
func (c *ConsoleServer) Close() {
	if c.listener != nil {
		c.listener.Close()
	}
}

// Serve serves the console of a database, which permits changes if write, until stop is called.
func (c *ConsoleServer) Serve(lapse *client.Client, write bool, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	end := webserver.Serve(c.listener, console.New(ctx, lapse, c.options(write)), "console", logger)
	return func() { cancel(); end() }
}

// options returns the options of a console: under which names it answers, for whom, and
// whether it may change anything.
func (c *ConsoleServer) options(write bool) console.Options {
	return console.Options{Hosts: c.Hosts, Token: c.Token, Write: write}
}

// movedConsoles is the consoles of databases that come and go, those of lapse test; nil for
// none, which all methods bear.
type movedConsoles struct {
	*console.Moved
	nc  *nats.Conn
	end func()
}

// moved returns the consoles of databases that come and go, which are not served yet.
func (c *ConsoleServer) moved(t *target) (*movedConsoles, error) {
	if c.listener == nil {
		return nil, nil
	}
	nc, err := t.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &movedConsoles{console.NewMoved(ctx, c.options(true)), nc, func() { cancel(); nc.Close() }}, nil
}

// serve serves the consoles, of one database at least.
func (m *movedConsoles) serve(c *ConsoleServer, logger *slog.Logger) {
	if m != nil {
		stop, end := webserver.Serve(c.listener, m.Moved, "console", logger), m.end
		m.end = func() { stop(); end() }
	}
}

// show adds the console of a database.
func (m *movedConsoles) show(db *testDatabase) error {
	if m == nil {
		return nil
	}
	c, err := client.New(m.nc, client.WithDatabase(string(db.name)))
	if err == nil {
		m.Add(c, db.clock.Millis)
	}
	return err
}

// hide removes the console of a database.
func (m *movedConsoles) hide(db *testDatabase) {
	if m != nil {
		m.Remove(string(db.name))
	}
}

// close ends all of them.
func (m *movedConsoles) close() {
	if m != nil {
		m.end()
	}
}

// serveEach serves a console for each database at /NAME/, or at / for the only one, until
// end is called; none if it does not listen.
func (c *ConsoleServer) serveEach(t *target) (end func(), err error) {
	if c.listener == nil {
		return func() {}, nil
	}
	write := c.mayWrite(t)
	nc, err := t.client()
	if err != nil {
		return nil, err
	}
	clients := make([]*client.Client, len(t.Databases))
	for i, name := range t.Databases {
		if clients[i], err = client.New(nc, client.WithDatabase(string(name))); err != nil {
			nc.Close()
			return nil, err
		}
	}
	if len(clients) == 1 {
		stop := c.Serve(clients[0], write, t.Processor.Logger)
		return func() { stop(); nc.Close() }, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop := webserver.Serve(c.listener, console.Several(ctx, clients, c.options(write)), "console", t.Processor.Logger)
	return func() { cancel(); stop(); nc.Close() }, nil
}

// mayWrite reports whether the console permits changes. It has the rights of a user, whom
// others have to log in for: it needs a token then.
func (c *ConsoleServer) mayWrite(t *target) bool {
	if c.Token != "" || !t.server.HasUsers() {
		return true
	}
	t.Processor.Logger.Info("the console is read-only, since the NATS server has users: to change things in it, give --console-token-file FILE")
	return false
}

// warn logs why there is no console.
func (c *ConsoleServer) warn(logger *slog.Logger) {
	if c.taken != nil {
		logger.Warn("the console is off: choose another address with --console HOST:PORT, or --console off", "console", c.Address, "err", c.taken)
	}
}
