package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestCommands runs the files in testdata/commands against a stand-in for the
// server. Their steps are:
//
//	answer SUBJECT-TAIL CODE [next] [expires=DURATION]
//	                            sets the reply to a request, or with next queues
//	                            a reply to the request after it; its document
//	                            expires DURATION from now
//	asked [all]                 shows the last request, or all of the last command
//	event                       appends events, one JSON object a line, to the log
//	trim SEQ                    removes the events up to SEQ from the log
//	run [terminal[=WIDTH]] [stderr] [colour] [lines=N] [bare]
//	                            runs the command line in the first line of the
//	                            input, with the rest as standard input, and
//	                            interrupts it after N lines; standard error is
//	                            a terminal only with stderr; bare adds no
//	                            --server
func TestCommands(t *testing.T) {
	datadriven.Walk(t, "testdata/commands", func(t *testing.T, path string) {
		s := newStandin(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "answer":
				code, err := strconv.Atoi(d.CmdArgs[1].Key)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				var expires string
				if d.HasArg("expires") {
					d.ScanArgs(t, "expires", &expires)
				}
				s.answer(d.CmdArgs[0].Key, code, d.Input, d.HasArg("next"))
				if expires != "" {
					s.expires(t, d.CmdArgs[0].Key, expires)
				}
				return ""
			case "asked":
				return s.lastAsked(d.HasArg("all"))
			case "event":
				for line := range strings.Lines(d.Input) {
					s.happen(t, line)
				}
				return ""
			case "trim":
				seq, err := strconv.ParseUint(d.CmdArgs[0].Key, 10, 64)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				s.trim(t, seq)
				return ""
			case "run":
				return s.run(t, d)
			}
			d.Fatalf(t, "unknown step %q", d.Cmd)
			return ""
		})
	})
}

func (s *standin) run(t *testing.T, d *datadriven.TestData) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	line, stdin, _ := strings.Cut(d.Input, "\n")
	var stderr bytes.Buffer
	stdout := &interrupter{cancel: cancel}
	if d.HasArg("lines") {
		d.ScanArgs(t, "lines", &stdout.after)
	}
	a := newApp(strings.NewReader(stdin), stdout, &stderr)
	a.colour = d.HasArg("colour")
	a.now = func() time.Time { return time.Unix(100, 0) }
	a.isTerminal = func(stream any) bool {
		if stream == any(a.stderr) {
			return d.HasArg("stderr")
		}
		return d.HasArg("terminal")
	}
	a.width = func(any) (width int) {
		if arg, ok := d.Arg("terminal"); ok && len(arg.Vals) > 0 {
			arg.Scan(t, 0, &width)
		}
		return width
	}
	args := split(line)[1:]
	if !d.HasArg("bare") {
		args = append(args, "--server", s.server.ClientURL())
	}
	s.reset()
	code := a.run(ctx, args)
	text := strings.ReplaceAll(stdout.String(), "\x1b", "ESC")
	for line := range strings.Lines(stderr.String()) {
		text += "! " + line
	}
	if code != 0 {
		text += fmt.Sprintf("exit %d\n", code)
	}
	return text
}

// split splits a command line at spaces outside single quotes.
func split(line string) (args []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

// interrupter is a standard output that interrupts the command after some lines.
type interrupter struct {
	mu     sync.Mutex
	b      bytes.Buffer
	after  int
	cancel func()
}

func (w *interrupter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(p)
	if w.after > 0 && bytes.Count(w.b.Bytes(), []byte("\n")) >= w.after {
		w.cancel()
	}
	return len(p), nil
}

func (w *interrupter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// standin is a NATS server that holds a log and sends prepared replies.
type standin struct {
	server *server.Server
	js     jetstream.JetStream

	mu       sync.Mutex
	answers  map[string][]*nats.Msg // by subject tail; the last one repeats
	requests []*nats.Msg
}

func newStandin(t *testing.T) *standin {
	t.Helper()
	ns := startNATS(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	nc := harness.Dial(t, ns.ClientURL())
	js, err := jetstream.New(nc)
	check(t, err)
	s := &standin{server: ns, js: js, answers: map[string][]*nats.Msg{}}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LAPSE_main", Subjects: []string{"lapse.main.events.>"}})
	check(t, err)
	_, err = nc.Subscribe("lapse.main.api.>", func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, m)
		tail := strings.TrimPrefix(m.Subject, "lapse.main.api.")
		if a := s.answers[tail]; len(a) > 0 {
			_ = m.RespondMsg(&nats.Msg{Header: a[0].Header, Data: a[0].Data})
			if len(a) > 1 {
				s.answers[tail] = a[1:]
			}
		}
	})
	check(t, err)
	check(t, nc.Flush())
	return s
}

func (s *standin) answer(tail string, code int, body string, next bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &nats.Msg{Header: nats.Header{}, Data: []byte(body)}
	m.Header.Set(schema.HeaderStatus, strconv.Itoa(code))
	if !next {
		s.answers[tail] = nil
	}
	s.answers[tail] = append(s.answers[tail], m)
}

// expires sets the deadline of the last reply for a tail to span from now.
func (s *standin) expires(t *testing.T, tail, span string) {
	d, err := time.ParseDuration(span)
	check(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	header := s.answers[tail][len(s.answers[tail])-1].Header
	header.Set(schema.HeaderDeadline, strconv.FormatInt(time.Now().Add(d).Unix(), 10))
	header.Set(schema.HeaderRule, "collection")
}

func (s *standin) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

func (s *standin) lastAsked(all bool) (text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.requests
	if !all {
		asked = asked[len(asked)-1:]
	}
	for _, m := range asked {
		text += m.Subject + "\n"
		for _, name := range []string{schema.HeaderIfMatch, schema.HeaderRequestID, schema.HeaderMinSeq, schema.HeaderExpireAt, schema.HeaderKeepDeadline} {
			if value := m.Header.Get(name); value != "" {
				text += name + ": " + value + "\n"
			}
		}
		if len(m.Data) > 0 {
			text += string(m.Data) + "\n"
		}
	}
	return text
}

// trim removes the events up to seq, as retention does.
func (s *standin) trim(t *testing.T, seq uint64) {
	t.Helper()
	log, err := s.js.Stream(t.Context(), "LAPSE_main")
	if err == nil {
		err = log.Purge(t.Context(), jetstream.WithPurgeSequence(seq+1))
	}
	check(t, err)
}

func (s *standin) happen(t *testing.T, line string) {
	t.Helper()
	var e schema.Event
	check(t, e.UnmarshalJSON([]byte(line)))
	m := nats.NewMsg("lapse.main.events." + e.EventTokens())
	e.Headers(func(name, value string) { m.Header.Set(name, value) })
	m.Data = e.Body
	ack, err := s.js.PublishMsg(t.Context(), m)
	check(t, err)
	if ack.Sequence != e.Seq {
		t.Fatalf("event %d came out as %d", e.Seq, ack.Sequence)
	}
}
