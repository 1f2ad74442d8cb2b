package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
)

// statusSource asks for the status, again and again with --watch. It keeps its
// connection.
type statusSource struct {
	conn *connection
	out  *output
	f    *statusFlags

	lapse  *client.Client
	hangUp func()
}

func newStatusSource(conn *connection, out *output, f *statusFlags) *statusSource {
	return &statusSource{conn: conn, out: out, f: f, hangUp: func() {}}
}

func (s *statusSource) close() { s.hangUp() }

// page returns what to print. before, if not nil, is what it is compared with and
// is brought to what is now.
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
	status, err := readStatus(reply)
	if err != nil {
		return nil, err
	}
	page := s.out.status(status, before)
	if before != nil {
		*before = since{at: time.Now(), status: status}
	}
	return page, nil
}

// connect connects, if that is not done yet.
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

// status returns the status as it was sent.
func (s *statusSource) status(ctx context.Context) ([]byte, error) {
	if s.f.of != "" {
		return statusOf(ctx, s.f.of, s.conn.timeout)
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

// statusOf asks the process with a --metrics address. One that is not ready is an
// error that says why.
func statusOf(ctx context.Context, address string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	code, text, err := httpGet(ctx, address, "/readyz")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, notReady(address, code, text)
	}
	code, text, err = httpGet(ctx, address, "/status")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, notReady(address, code, text)
	}
	return text, nil
}

// notReady is why a process is not, in one line.
func notReady(address string, code int, text []byte) error {
	var said readiness
	if json.Unmarshal(text, &said) != nil || len(said.Reasons) == 0 {
		return fmt.Errorf("what answers at %s is not lapse: it says %d to /readyz", address, code)
	}
	return fmt.Errorf("the lapse at %s is not ready: %s", address, strings.Join(said.Reasons, "; "))
}

// httpBytes is more than any answer of ours has.
const httpBytes = 1 << 20

func httpGet(ctx context.Context, address, path string) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op
		}
		return 0, nil, fmt.Errorf("no lapse answers at %s: %w: give the address that its --metrics has", address, err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, httpBytes))
	return response.StatusCode, body, err
}

// checkAddress refuses what is not HOST:PORT.
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
