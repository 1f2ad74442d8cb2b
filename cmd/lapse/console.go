package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
	"github.com/lapsedb/lapse/webserver"
)

// consoleAddress is the default of --console.
const consoleAddress = "127.0.0.1:8280"

// leastToken is the minimum length of a console token, in bytes.
const leastToken = 16

// consoleFlags are the flags of the console: address, token and host names.
type consoleFlags struct {
	address   string // HOST:PORT, or off
	given     bool   // --console was given
	tokenFile string
	hosts     []string
}

func (f *consoleFlags) add(flags *pflag.FlagSet, off string) {
	flags.StringVar(&f.address, "console", consoleAddress, "serve the web console at `HOST:PORT`"+off)
	flags.StringVar(&f.tokenFile, "console-token-file", "", "ask users of the console for the token in `FILE`; needed on addresses other than loopback")
	flags.StringSliceVar(&f.hosts, "console-host", nil, "let the console answer under the host `NAME`, too; repeatable")
}

// consoleServer is a console. It does not listen if it is off or its default address is
// in use.
type consoleServer struct {
	listener net.Listener // nil if it does not listen
	taken    error        // why it does not listen; nil if it is off
	url      string       // for a browser
	hosts    []string
	token    string
}

// open listens, so that flag errors are reported before anything starts. It tolerates
// that the default address is in use: several lapse run on one machine.
func (f *consoleFlags) open() (*consoleServer, error) {
	if f.address == "off" || !console.Built && !f.given {
		return &consoleServer{}, nil
	}
	if !console.Built {
		return nil, usageErrorf("--console %s: this lapse was built without the console (tag no_console)", f.address)
	}
	token, err := f.readToken()
	if err != nil {
		return nil, err
	}
	listener, err := listenHTTP(f.address)
	switch {
	case err != nil && f.given:
		return nil, fmt.Errorf("cannot serve the console at %s: %w: choose another address with --console HOST:PORT, or --console off", f.address, err)
	case err != nil:
		return &consoleServer{taken: err}, nil
	}
	host, _, _ := net.SplitHostPort(f.address)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return &consoleServer{
		listener: listener, token: token, hosts: append([]string{host}, f.hosts...),
		url: "http://" + net.JoinHostPort(host, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)),
	}, nil
}

// close ends a console that is not served yet.
func (c *consoleServer) close() {
	if c.listener != nil {
		c.listener.Close()
	}
}

// serve serves the console until stop is called.
func (c *consoleServer) serve(lapse *client.Client, write bool, logger *slog.Logger) (stop func()) {
	return webserver.Serve(c.listener, console.New(lapse, c.options(write)), "console", logger)
}

func (c *consoleServer) options(write bool) console.Options {
	return console.Options{Hosts: c.hosts, Token: c.token, Write: write}
}

// serveEach serves a console for each database at /NAME/, or at / for the only one, until
// end is called.
func (c *consoleServer) serveEach(t *target, logger *slog.Logger) (end func(), err error) {
	first, err := client.Connect(t.url, client.WithDatabase(string(t.databases[0])), client.WithNATSOptions(nats.Name("lapse console")))
	if err != nil {
		return nil, err
	}
	if len(t.databases) == 1 {
		stop := c.serve(first, true, logger)
		return func() { stop(); first.Close() }, nil
	}
	pages := consolePages{first: first.Database(), of: make(map[string]http.Handler)}
	for _, name := range t.databases {
		lapse, err := client.New(first.Conn(), client.WithDatabase(string(name)))
		if err != nil {
			first.Close()
			return nil, err
		}
		pages.of[string(name)] = console.New(lapse, c.options(true))
	}
	stop := webserver.Serve(c.listener, pages, "console", logger)
	return func() { stop(); first.Close() }, nil
}

// consolePages serves the consoles of several databases and redirects all other paths to
// the first.
type consolePages struct {
	first string
	of    map[string]http.Handler
}

func (p consolePages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if page, there := p.of[name]; there {
		http.StripPrefix("/"+name, page).ServeHTTP(w, r)
		return
	}
	to := r.Clone(r.Context()) // the console redirects PREFIX to PREFIX/, for its own host names only
	to.URL.Path, to.URL.RawQuery, to.RequestURI = "", "", "/"+p.first
	p.of[p.first].ServeHTTP(w, to)
}

// warn logs why there is no console.
func (c *consoleServer) warn(logger *slog.Logger) {
	if c.taken != nil {
		logger.Warn("the console is off: choose another address with --console HOST:PORT, or --console off", "console", consoleAddress, "err", c.taken)
	}
}

// readToken reads the token, which is required unless the address is loopback.
func (f *consoleFlags) readToken() (string, error) {
	if err := checkAddress("--console", f.address); err != nil {
		return "", usageErrorf("%v; or off", err)
	}
	if f.tokenFile == "" {
		host, _, _ := net.SplitHostPort(f.address)
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return "", usageErrorf("--console %s: others can connect there, so the console needs a token: give --console-token-file FILE, or an address like %s", f.address, consoleAddress)
		}
		return "", nil
	}
	text, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--console-token-file: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) < leastToken || bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("--console-token-file %s: put one token into it, of at least %d letters and digits", f.tokenFile, leastToken)
	}
	return string(text), nil
}

func newConsoleCommand(a *app) *cobra.Command {
	var conn connection
	f := consoleFlags{given: true}
	var write bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve the web console of a database",
		Long: `console serves web pages at 127.0.0.1:8280 until interrupted: status, collections, TTL,
forecasts, documents and the change feed of any database that the connection flags reach.
It is read-only without --write. lapse serve has a console of its own.`,
		Example: `  lapse console --context prod
  lapse console --server nats://n1:4222 --write --console 127.0.0.1:9000`,
		Args: arguments(0, 0),
	}
	conn.addFlags(cmd)
	f.add(cmd.Flags(), "")
	cmd.Flags().BoolVar(&write, "write", false, "permit changes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.address == "off" {
			return usageErrorf("--console off: give HOST:PORT, like %s", consoleAddress)
		}
		served, err := f.open()
		if err != nil {
			return err
		}
		defer served.close()
		lapse, hangUp, err := conn.open(cmd.Context(), a.connectionNotices()...)
		if err != nil {
			return err
		}
		defer hangUp()
		defer served.serve(lapse, write, slog.New(slog.NewTextHandler(a.stderr, nil)))()
		mode := "read-only"
		if write {
			mode = "with --write"
		}
		_, _ = fmt.Fprintf(a.stderr, "lapse: ready: database %s at %s, %s, console: %s\n", lapse.Database(), lapse.Conn().ConnectedUrlRedacted(), mode, served.url)
		<-cmd.Context().Done()
		return nil
	}
	return cmd
}
