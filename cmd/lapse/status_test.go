package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestStatusAllNamesUnresponsive: `status --all` names the processes that others know and that
// do not answer. Its table fits in 80 columns.
func TestStatusAllNamesUnresponsive(t *testing.T) {
	t.Parallel()
	s := startNATS(t, &server.Options{})
	nc := harness.Dial(t, s.ClientURL())
	const writer, hangs, copies = "WRITER9012345678901234", "HANGS89012345678901234", "COPY789012345678901234"
	role := func(name string) string {
		if name == writer {
			return "writer"
		}
		return "copy"
	}
	if _, err := nc.Subscribe("$SRV.INFO.lapse", func(m *nats.Msg) {
		for _, name := range []string{writer, copies} {
			if err := m.Respond(fmt.Appendf(nil, `{"name":"lapse","id":%[1]q,"version":%[2]q,"process":{"id":%[1]q,"version":%[2]q,"started":%[3]q,
				"databases":[{"database":"main","role":%[4]q,"seq":123456789,"waiting":100000,"requests":123456789,"errors":1234567}],
				"knows":{%[5]q:{"main":"copy"}}}}`, name, "0.1.0-with-a-long-tail", time.Now().Format(time.RFC3339), role(name), hangs)); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	check(t, nc.Flush())
	var stdout bytes.Buffer
	a := newApp(strings.NewReader(""), &stdout, &stdout)
	a.isTerminal, a.colour = func(any) bool { return true }, false
	status := &statusCommand{output: &output{app: a}, conn: connection{server: s.ClientURL(), database: "main", timeout: 3 * time.Second}, all: true, hangUp: func() {}}
	defer func() { status.hangUp() }()
	ask := func() (text []byte) {
		t.Helper()
		text, err := status.page(t.Context())
		for end := time.Now().Add(time.Minute); errors.Is(err, client.ErrUnavailable) && time.Now().Before(end); {
			text, err = status.page(t.Context()) // the machine may have paused for 3s
		}
		check(t, err)
		return text
	}
	page := func(want ...string) {
		t.Helper()
		text := ask()
		for line := range strings.Lines(string(text)) {
			if textWidth(strings.TrimSuffix(line, "\n")) > 80 {
				t.Errorf("wider than 80 columns: %s", line)
			}
		}
		for _, line := range want {
			if !strings.Contains(string(text), line+"\n") {
				t.Errorf("no line %q:\n%s", line, text)
			}
		}
	}
	page(hangs + ": no answer within 3s")
	status.json = true
	lines := ask()
	if want := `{"id":"` + hangs + `","host":"","pid":0,"version":"","seq":0,"behind":0,"role":"standby","waiting":0,"requests":0,"errors":0,"error":"no answer within 3s"}`; !strings.Contains(string(lines), want+"\n") {
		t.Errorf("%s", lines)
	}
}

// TestStatusAllFlooded: beyond 4096 replies `status --all` prints what it knows, and fails.
func TestStatusAllFlooded(t *testing.T) {
	t.Parallel()
	s := startNATS(t, &server.Options{})
	nc := harness.Dial(t, s.ClientURL())
	// It knows another one, whose reply is awaited: no pause between the replies ends them.
	const reply = `{"id":"SILENT","process":{"id":"SILENT","databases":[{"database":"main","role":"writer"}],"knows":{"OTHER":{"main":"copy"}}}}`
	if _, err := nc.Subscribe("$SRV.INFO.lapse", func(m *nats.Msg) {
		for range 4097 {
			if err := m.Respond([]byte(reply)); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	check(t, nc.Flush())
	var stdout, stderr bytes.Buffer
	code := newApp(strings.NewReader(""), &stdout, &stderr).run(t.Context(), []string{"status", "--all", "--json", "--timeout", "1m", "--server", s.ClientURL()})
	if code != exitFailed || !strings.Contains(stderr.String(), "more than 4096 replies came to $SRV.INFO.lapse") || !strings.Contains(stdout.String(), `"id":"SILENT"`) {
		t.Fatalf("exit %d, %s%s", code, &stdout, &stderr)
	}
}

// TestStatusAllOfDatabases: with several databases each row names its own, and each
// database should have one writer.
func TestStatusAllOfDatabases(t *testing.T) {
	a := newApp(strings.NewReader(""), nil, nil)
	a.isTerminal, a.colour = func(any) bool { return true }, false
	all := []client.Process{
		{Database: "a", Process: schema.Process{ID: "WRITER9012345678901234", Version: "0.1.0", Seq: 7}, Role: "writer"},
		{Database: "a", Process: schema.Process{ID: "BEHIND9012345678901234", Version: "0.1.0", Seq: 5}, Role: "standby"},
		{Database: "a-tenant-with-the-longest-name-1", Process: schema.Process{ID: "SILENT9012345678901234", Version: "0.1.0"}, Role: "standby", Error: "no answer within 3s"},
	}
	text, err := (&output{app: a}).processesPage(all)
	check(t, err)
	lines := strings.Split(string(text), "\n")
	for i, want := range []string{"DATABASE", "a", "a", "a-ten"} {
		if fields := strings.Fields(lines[i]); len(fields) < 3 || !strings.HasPrefix(fields[2], want[:min(len(want), 4)]) {
			t.Errorf("line %d is %q, want %q in the third column", i, lines[i], want)
		}
	}
	for _, want := range []string{"a-tenant-with-the-longest-name-1 SILENT9012345678901234: no answer within 3s\n", "\n0 writers of database a-tenant-with-the-longest-name-1: there should be one\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no line %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "of database a:") {
		t.Errorf("database a has a writer:\n%s", text)
	}
}

// TestStatusOfAnotherServer: a server other than lapse gives an error that says so,
// whether it speaks first, as NATS does, or stays silent.
func TestStatusOfAnotherServer(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		says  string
	}{
		"speaks first": {func(conn net.Conn) { io.WriteString(conn, "INFO {\"max_payload\":1}\r\n") }, "does not answer in HTTP"},
		"hangs up":     {func(net.Conn) {}, "is not lapse"},
		"says nothing": {func(conn net.Conn) { io.Copy(io.Discard, conn) }, "no lapse answers at"},
		"another page": {func(conn net.Conn) { io.WriteString(conn, "HTTP/1.0 404 Not Found\r\n\r\n") }, "answers 404"},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			check(t, err)
			defer listener.Close()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					c.serve(conn)
					conn.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, conn) // a close with unread bytes is a reset
					conn.Close()
				}
			}()
			timeout := time.Minute
			if name == "says nothing" {
				timeout = 100 * time.Millisecond
			}
			_, err = (&statusCommand{of: listener.Addr().String(), conn: connection{timeout: timeout}}).process(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v, want a line with %q", err, c.says)
			}
		})
	}
}
