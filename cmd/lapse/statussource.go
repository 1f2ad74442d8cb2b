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

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
)

// statusSource requests the status, repeatedly with --watch over one connection.
type statusSource struct {
	conn *connection
	out  *output
	f    *statusFlags

	lapse  *client.Client
	hangUp func()
	before []client.Process // of the page before, with --all
}

func newStatusSource(conn *connection, out *output, f *statusFlags) *statusSource {
	return &statusSource{conn: conn, out: out, f: f, hangUp: func() {}}
}

func (s *statusSource) close() { s.hangUp() }

// page returns a page to print. If before is not nil, rates are relative to it, and it
// becomes this page.
func (s *statusSource) page(ctx context.Context, before *since) ([]byte, error) {
	if s.f.all {
		processes, err := s.processes(ctx)
		if err != nil {
			return nil, err
		}
		return s.out.processes(processes)
	}
	reply, err := s.status(ctx)
	if err != nil {
		return nil, err
	}
	if !s.out.forPeople() {
		return append(bytes.TrimSpace(reply), '\n'), nil
	}
	var pages []byte
	for line := range bytes.Lines(bytes.TrimSpace(reply)) { // of several databases with --of
		status, err := readStatus(line)
		if err != nil {
			return nil, err
		}
		if pages != nil {
			pages = append(pages, '\n')
		}
		earlier := before
		if before != nil && before.status.Database != status.Database {
			earlier = nil
		}
		pages = append(pages, s.out.status(status, earlier)...)
		if before != nil {
			*before = since{at: time.Now(), status: status}
		}
	}
	return pages, nil
}

// connect connects once.
func (s *statusSource) connect(ctx context.Context) error {
	if s.lapse != nil {
		return nil
	}
	lapse, hangUp, err := s.conn.open(ctx)
	if err == nil {
		s.lapse, s.hangUp = lapse, hangUp
	}
	return err
}

// status returns the status as received.
func (s *statusSource) status(ctx context.Context) ([]byte, error) {
	if s.f.of != "" {
		query := ""
		if !s.f.databases {
			query = "?database=" + url.QueryEscape(s.conn.database)
		}
		return statusOf(ctx, s.f.of, query, s.conn.timeout)
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	reply, err := s.lapse.Do(ctx, "status", "", "", nil)
	if err != nil {
		return nil, err
	}
	return reply.Body, nil
}

// statusOf asks the process with a --metrics address. query may name a database. It
// fails with the reasons if the process is not ready.
func statusOf(ctx context.Context, address, query string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	code, text, err := httpGet(ctx, address, "/readyz"+query)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, notReady(address, code, text)
	}
	code, text, err = httpGet(ctx, address, "/status"+query)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, notReady(address, code, text)
	}
	return text, nil
}

// notReady returns an error with the reasons why a process is not ready.
func notReady(address string, code int, text []byte) error {
	var said host.Readiness
	if json.Unmarshal(text, &said) != nil || len(said.Reasons) == 0 {
		return fmt.Errorf("the server at %s is not lapse: it answers %d to /readyz; give the address of --metrics", address, code)
	}
	return fmt.Errorf("the lapse at %s is not ready: %s", address, strings.Join(said.Reasons, "; "))
}

// httpBytes bounds a response; the largest one is smaller.
const httpBytes = 1 << 20

// httpGet sends a GET over a connection of its own, without http.Client: when a server
// speaks first, as NATS does, http.Client prints its text and loses the error.
func httpGet(ctx context.Context, address, path string) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Close = true
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, nil, noLapse(address, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := request.Write(conn); err != nil {
		return 0, nil, noLapse(address, cmp.Or(ctx.Err(), err))
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err := ctx.Err(); err != nil {
		return 0, nil, noLapse(address, err)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("the server at %s is not lapse: it does not answer in HTTP; give the address of --metrics", address)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, httpBytes))
	return response.StatusCode, body, err
}

func noLapse(address string, err error) error {
	return fmt.Errorf("no lapse answers at %s: %w: give the address of its --metrics", address, err)
}

// checkAddress returns a usage error unless address is HOST:PORT.
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
