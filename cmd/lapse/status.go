package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
)

// status asks one of three: any process that serves the database (a request over NATS),
// every process (--all), or one process at its --metrics address over HTTP (--of). The last
// needs no NATS and tells whether that process is ready, so it serves as a healthcheck:
// exit 1 with the reasons.
//
// For programs a page is the reply as it came; for people it is a table (statuspage.go).
// --watch repeats it over one connection, and keeps what it needs from the page before: the
// end of each log, for the rate.

// statusCommand asks for the status, with --watch again and again over one connection. One
// goroutine uses it.
type statusCommand struct {
	*output
	conn connection

	of  string
	all bool

	databases bool          // --database was not given: --all shows the processes of all databases
	watch     time.Duration // 0 without --watch

	lapse  *client.Client // nil before the first request
	hangUp func()
	before map[string]seen // by database: the page before
}

// seen is the end of a log at a moment.
type seen struct {
	at  time.Time
	seq uint64
}

// watchInterval is the interval of --watch without a value.
const watchInterval = 2 * time.Second

func newStatusCommand(a *app) *cobra.Command {
	s := &statusCommand{hangUp: func() {}}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of a database or process",
		Long: `status asks any process that serves the database, with --all every process, of all
databases unless --database is given. With --of it asks one process at its --metrics
address over HTTP, without NATS, as a healthcheck: if that process, or its database
--database, is not ready, it prints the reason and exits with 1.`,
		Example: `  lapse status --watch
  lapse status --all --watch 10s
  lapse status --of 127.0.0.1:9090`,
	}
	// pflag takes the INTERVAL of `--watch INTERVAL`, which may be missing, for an argument.
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && s.watch == watchInterval {
			if err := cmd.Flags().Set("watch", args[0]); err != nil {
				return flagError(cmd, err)
			}
			return nil
		}
		return arguments(0, 0)(cmd, args)
	}
	s.conn.addFlags(cmd)
	var connecting []string
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "database" && f.Name != "timeout" {
			connecting = append(connecting, f.Name)
		}
	})
	s.output = a.addOutputFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&s.of, "of", "", "ask the process with --metrics `HOST:PORT`")
	flags.BoolVar(&s.all, "all", false, "show every process, one a line")
	flags.VarP(&durationFlag{to: &s.watch, least: 100 * time.Millisecond}, "watch", "w", "repeat every `INTERVAL` until interrupted (2s without a value)")
	flags.Lookup("watch").NoOptDefVal = watchInterval.String()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.of != "" {
			if err := checkAddress("--of", s.of); err != nil {
				return err
			}
			// They would silently mean nothing: --of uses no NATS.
			for _, other := range append(connecting, "all") {
				if flags.Changed(other) {
					return usageErrorf("--of and --%s given: use one of them", other)
				}
			}
		}
		defer func() { s.hangUp() }()
		s.databases = !flags.Changed("database")
		if s.watch > 0 {
			return s.repeat(cmd.Context())
		}
		page, err := s.page(cmd.Context())
		if _, err := s.stdout.Write(page); err != nil {
			return err
		}
		return err
	}
	return cmd
}

// page asks, and returns what to print, also with an error if a part is missing, such as
// one process of several.
func (s *statusCommand) page(ctx context.Context) ([]byte, error) {
	if s.of == "" && s.lapse == nil {
		lapse, hangUp, err := s.conn.connect(ctx)
		if err != nil {
			return nil, err
		}
		s.lapse, s.hangUp = lapse, hangUp
	}
	var text []byte
	var err error
	switch {
	case s.all:
		ask := s.lapse.Processes
		if s.databases {
			ask = s.lapse.AllProcesses
		}
		all, err := ask(ctx)
		if len(all) == 0 {
			return nil, err
		}
		// The rows that are known are printed, whatever err says of the others.
		page, failed := s.processesPage(all)
		return page, cmp.Or(err, failed)
	case s.of != "":
		text, err = s.process(ctx)
	default:
		var reply *client.Reply
		if reply, err = s.lapse.Do(ctx, "status", "", "", nil); err == nil {
			text = reply.Body
		}
	}
	if err != nil {
		return nil, err
	}
	if !s.forPeople() {
		return append(bytes.TrimSpace(text), '\n'), nil
	}
	var pages []string
	before := s.before
	s.before = make(map[string]seen)
	for line := range bytes.Lines(bytes.TrimSpace(text)) { // of several databases with --of
		var status client.Status
		if err := readReply(line, &status); err != nil {
			return nil, err
		}
		now := seen{time.Now(), status.Seq}
		rate := ""
		// A sequence that goes back is another process's, which is less far, or another
		// log's.
		if b, ok := before[status.Database]; ok && now.seq >= b.seq {
			rate = fmt.Sprintf(", %.0f/s", float64(now.seq-b.seq)/now.at.Sub(b.at).Seconds())
		}
		s.before[status.Database] = now
		pages = append(pages, s.statusPage(status, rate))
	}
	return []byte(strings.Join(pages, "\n")), nil
}

// process asks the process with a --metrics address. It fails with the reasons if that is
// not ready. /readyz comes first: its reasons say why there is no useful status.
func (s *statusCommand) process(ctx context.Context) (text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.conn.timeout)
	defer cancel()
	query := ""
	if !s.databases {
		query = "?database=" + url.QueryEscape(s.conn.database)
	}
	for _, path := range []string{"/readyz", "/status"} {
		var code int
		if code, text, err = httpGet(ctx, "tcp", s.of, path+query); err != nil {
			return nil, err
		}
		if code != http.StatusOK {
			var why host.Readiness
			if json.Unmarshal(text, &why) != nil || len(why.Reasons) == 0 {
				return nil, fmt.Errorf("the server at %s is not lapse: it answers %d to %s; give the address of --metrics", s.of, code, path)
			}
			return nil, fmt.Errorf("the lapse at %s is not ready: %s", s.of, strings.Join(why.Reasons, "; "))
		}
	}
	return text, nil
}

// httpGet sends a GET over a connection of its own, without http.Client: when a server
// speaks first, as NATS does, http.Client prints its text and loses the error. It reads at
// most 1 MiB. Errors say that there is no lapse, or that something else answers.
func httpGet(ctx context.Context, network, address, path string) (code int, body []byte, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: lapse\r\nAccept: application/json\r\nConnection: close\r\n\r\n", path)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("no lapse answers at %s: %w: give the address of its --metrics", address, cmp.Or(ctx.Err(), err))
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		defer response.Body.Close()
		body, err = io.ReadAll(io.LimitReader(response.Body, 1<<20)) // the largest is smaller
	}
	switch {
	case ctx.Err() != nil:
		return 0, nil, fmt.Errorf("no lapse answers at %s: %w: give the address of its --metrics", address, ctx.Err())
	case err != nil:
		return 0, nil, fmt.Errorf("the server at %s is not lapse: it does not answer in HTTP; give the address of --metrics", address)
	}
	return response.StatusCode, body, nil
}

// checkAddress returns a usage error unless address is HOST:PORT. The host may be empty,
// and port 0 is legal: what they mean is up to the listener.
func checkAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return usageErrorf("%s %q: use HOST:PORT, like 127.0.0.1:9090", flag, address)
	}
	return nil
}
