package test

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// patience bounds how long a test waits for an expected event.
const patience = 60 * time.Second

// dial connects to a server as any client does, without credentials.
func dial(t testing.TB, s *harness.Server) *nats.Conn {
	t.Helper()
	return harness.Dial(t, s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
}

// readFeed reads the events of one collection, "*" for all, from the log's
// beginning, with a JetStream consumer and nothing of lapse. It ends when
// enough returns true for the events so far.
func readFeed(t testing.TB, nc *nats.Conn, collection string, enough func([]event) bool) (events []event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	js, err := jetstream.New(nc)
	check(t, err)
	consumer, err := js.OrderedConsumer(ctx, "LAPSE_main", jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"lapse.main.events." + collection + ".>"},
	})
	check(t, err)
	messages, err := consumer.Messages()
	check(t, err)
	defer messages.Stop()
	for !enough(events) {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatalf("after %d events: %v", len(events), err)
		}
		meta, err := m.Metadata()
		check(t, err)
		if e, ok := eventOf(t, meta.Sequence.Stream, m); ok {
			events = append(events, e)
		}
	}
	return events
}

// eventOf reads a message of the log; ok is false for an internal event.
func eventOf(t testing.TB, seq uint64, m jetstream.Msg) (e event, ok bool) {
	t.Helper()
	tokens := strings.Split(m.Subject(), ".")
	if len(tokens) != 5 || tokens[0] != "lapse" || tokens[2] != "events" {
		t.Fatalf("event %d has the subject %s", seq, m.Subject())
	}
	if tokens[3] == "_" {
		return e, false
	}
	number := func(name string) int64 {
		value := m.Headers().Get(name)
		if value == "" {
			return 0
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatalf("event %d: %s: %v", seq, name, err)
		}
		return n
	}
	id, err := url.PathUnescape(m.Headers().Get("Lapse-Id"))
	if err != nil {
		t.Fatalf("event %d: %v", seq, err)
	}
	return event{
		Seq: seq, Time: time.UnixMilli(number("Lapse-Time")).UTC(), Type: tokens[4], Collection: tokens[3], ID: id,
		Previous: uint64(number("Lapse-Previous")), Deadline: number("Lapse-Deadline"), TTL: number("Lapse-Ttl"),
		Rule: m.Headers().Get("Lapse-Rule"), Restored: uint64(number("Lapse-Restored")), Cause: m.Headers().Get("Lapse-Cause"), Body: m.Data(),
	}, true
}

// answer is a reply to a request.
type answer struct {
	code int
	seq  uint64
	body []byte
}

// ask sends a request: tail is what follows lapse.main.api. in its subject.
func ask(t testing.TB, nc *nats.Conn, tail, body string) answer {
	t.Helper()
	return askOf(t, nc, "main", tail, body)
}

// askOf is ask for any database.
func askOf(t testing.TB, nc *nats.Conn, db, tail, body string) answer {
	t.Helper()
	a, err := request(nc, db, tail, body, patience)
	if err != nil {
		t.Fatalf("%s of %s: %v", tail, db, err)
	}
	return a
}

func tryAskFor(nc *nats.Conn, tail, body string, timeout time.Duration) (answer, error) {
	return request(nc, "main", tail, body, timeout)
}

// tryAskWith is tryAskFor with headers, names and values in turn.
func tryAskWith(nc *nats.Conn, tail, body string, timeout time.Duration, headers ...string) (answer, error) {
	return request(nc, "main", tail, body, timeout, headers...)
}

func request(nc *nats.Conn, db, tail, body string, timeout time.Duration, headers ...string) (answer, error) {
	m := nats.NewMsg("lapse." + db + ".api." + tail)
	m.Data = []byte(body)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	m, err := nc.RequestMsg(m, timeout)
	if err != nil {
		return answer{}, err
	}
	code, err := strconv.Atoi(m.Header.Get("Lapse-Status"))
	if err != nil {
		return answer{}, err
	}
	seq, err := strconv.ParseUint(m.Header.Get("Lapse-Seq"), 10, 64)
	return answer{code, seq, m.Data}, err
}

// mustAsk is ask for a request that must be answered with code.
func mustAsk(t testing.TB, nc *nats.Conn, code int, tail, body string) answer {
	t.Helper()
	return mustAskOf(t, nc, code, "main", tail, body)
}

func mustAskOf(t testing.TB, nc *nats.Conn, code int, db, tail, body string) answer {
	t.Helper()
	a := askOf(t, nc, db, tail, body)
	if a.code != code {
		t.Fatalf("%s of %s %.200s: %d %.500s, want %d", tail, db, body, a.code, a.body, code)
	}
	return a
}

// status is the reply to a status request.
type status struct {
	Version       string `json:"version"`
	Database      string `json:"database"`
	Role          string `json:"role"`
	Seq           uint64 `json:"seq"`
	LogTime       int64  `json:"logTime"`
	Documents     int64  `json:"documents"`
	PendingExpiry int64  `json:"pendingExpiry"`
	Held          int64  `json:"held"`
	Host          string `json:"host"`
	PID           int    `json:"pid"`
	Overdue       int64  `json:"overdue"`
	LatenessMs    struct {
		P50 int64 `json:"p50"`
		P99 int64 `json:"p99"`
		Max int64 `json:"max"`
	} `json:"latenessMs"`
	MutationsBehind int64  `json:"mutationsBehind"`
	LogEnd          uint64 `json:"logEnd"`
	Waiting         int    `json:"waiting"`
	Digest          string `json:"digest"`
	Clock           struct {
		Suspect bool   `json:"suspect"`
		OffByMs int64  `json:"offByMs"`
		ForMs   int64  `json:"forMs"`
		Reason  string `json:"reason"`
		Refused uint64 `json:"refused"`
	} `json:"clock"`
	LatenessObjective struct {
		Ms        int64   `json:"ms"`
		Share     float64 `json:"share"`
		Expired   int64   `json:"expired"`
		Late      int64   `json:"late"`
		OverdueMs int64   `json:"overdueMs"`
		Kept      bool    `json:"kept"`
	} `json:"latenessObjective"`
	Storage   json.RawMessage `json:"storage"`
	Memory    json.RawMessage `json:"memory"`
	Copies    int             `json:"copies"`
	Processes []struct {
		ID      string `json:"id"`
		Host    string `json:"host"`
		PID     int    `json:"pid"`
		Version string `json:"version"`
		Role    string `json:"role"`
		Seq     uint64 `json:"seq"`
		Behind  uint64 `json:"behind"`
	} `json:"processes"`
}

func askStatus(t testing.TB, nc *nats.Conn) (s status) {
	t.Helper()
	a := mustAsk(t, nc, 200, "status", "")
	decoder := json.NewDecoder(strings.NewReader(string(a.body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return s
}

var (
	check      = harness.Check
	eventually = harness.Eventually
)

// refusal checks that a command ended with 1 and one line that names the error.
func refusal(t testing.TB, r harness.Result, name string) {
	t.Helper()
	if r.Exits(1); !strings.Contains(r.Stderr, name) || r.Stdout != "" {
		t.Errorf("it says %q and prints %q, want %s", r.Stderr, r.Stdout, name)
	}
}
