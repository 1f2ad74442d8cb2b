package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/schema/asyncapi"
	"github.com/lapsedb/lapse/test/conform"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// patience is how long a test waits for what has to come.
const patience = time.Minute

// clocks is a lapse whose clocks a test moves, and a client that knows the contract only.
type clocks struct {
	testing.TB
	*nats.Conn
	url, console string
}

// startClocks serves databases in memory until the test ends.
func startClocks(t testing.TB, test host.Test) *clocks {
	t.Helper()
	if test.At.IsZero() {
		test.At = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan host.Ready, 1), make(chan error, 1)
	o := host.Options{Listen: "127.0.0.1:0", Test: &test, Console: host.Console{Address: "127.0.0.1:0"}, Events: func(e host.Event) {
		if e, ok := e.(host.Ready); ok {
			ready <- e
		}
	}}
	go func() { ended <- host.Run(ctx, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case r := <-ready:
		c := &clocks{TB: t, url: r.URL, console: r.Console}
		c.Conn = c.connect()
		return c
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return nil
}

func (c *clocks) connect() *nats.Conn {
	c.Helper()
	nc, err := nats.Connect(c.url, nats.Timeout(patience))
	check(c, err)
	c.Cleanup(nc.Close)
	return nc
}

// ask sends a request; subject is what follows lapse. in it.
func (c *clocks) ask(subject, body string, headers ...string) (code string, reply string) {
	c.Helper()
	m := nats.NewMsg("lapse." + subject)
	m.Data = []byte(body)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	r, err := c.RequestMsg(m, patience)
	if err != nil {
		c.Fatalf("%s: %v", subject, err)
	}
	c.described(m, r)
	return r.Header.Get("Lapse-Status"), string(r.Data)
}

// beyond matches what no schema can express.
var beyond = regexp.MustCompile(`does not go back|ends with the year 9999|at \\"1969|database name`)

// described checks a request of the clock and its reply against schema/asyncapi.yaml.
func (c *clocks) described(m, r *nats.Msg) {
	c.Helper()
	operation := strings.SplitN(m.Subject, ".", 3)[2]
	if _, ok := asyncapi.Load().Operations[operation]; !ok || !strings.HasPrefix(operation, "test.") {
		return
	}
	err := conform.Request(operation, m.Header, m.Data)
	if refused := r.Header.Get("Lapse-Status") == "400" && !beyond.Match(r.Data); refused != (err != nil) {
		c.Errorf("%s %s is answered %s, and by schema/asyncapi.yaml %v", m.Subject, m.Data, r.Data, err)
	}
	if err := conform.Reply(operation, r.Header, r.Data); err != nil {
		c.Errorf("%s is answered %v %s: %v", m.Subject, r.Header, r.Data, err)
	}
}

// want sends a request whose reply begins with what is wanted: the code, and the body.
func (c *clocks) want(want, subject, body string, headers ...string) {
	c.Helper()
	code, reply := c.ask(subject, body, headers...)
	if got := code + " " + reply; !strings.HasPrefix(got, want) {
		c.Errorf("%s %s: %s, want %s", subject, body, got, want)
	}
}

// log returns the log of a database: a line for each event that is not internal, with its time
// and headers but the secret of none.
func (c *clocks) log(db string) string {
	c.Helper()
	js, err := jetstream.New(c.Conn)
	check(c, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := js.Stream(ctx, "LAPSE_"+db)
	check(c, err)
	var lines strings.Builder
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		check(c, err)
		tail := strings.TrimPrefix(m.Subject, "lapse."+db+".events.")
		if strings.HasPrefix(tail, "_.") {
			continue
		}
		fmt.Fprintf(&lines, "%s %s %s %s%s\n", m.Header.Get("Lapse-Time"), tail, m.Header.Get("Lapse-Id"), m.Header.Get("Lapse-Cause"), m.Data)
	}
	return lines.String()
}

// wantLog compares the lines of a log with lines of time, in ms after the beginning of 2000,
// and what follows the time.
func (c *clocks) wantLog(db string, want ...string) {
	c.Helper()
	got := strings.Split(strings.TrimSpace(c.log(db)), "\n")
	for i := range max(len(got), len(want)) {
		var line string
		if i < len(want) {
			var ms int64
			var rest string
			if _, err := fmt.Sscanf(want[i], "%d", &ms); err != nil {
				c.Fatal(err)
			}
			_, rest, _ = strings.Cut(want[i], " ")
			line = fmt.Sprint(946684800000+ms, " ", rest)
		}
		if i >= len(got) || line == "" || !strings.HasPrefix(got[i], line) {
			c.Fatalf("event %d is not %q in\n%s", i, line, strings.Join(got, "\n"))
		}
	}
}

// TestClockMoves: a clock stands still, and stops on its way at each second at which something
// is due; documents and log show it at the reply.
func TestClockMoves(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	c.want(`200 {"now":946684800000}`, "main.test.now", "")
	c.want("201", "main.api.collection.create.c", `{"defaultTtl":10,"warnBefore":4}`)
	c.want("201", "main.api.document.create.c.a", `{"n":1}`)
	c.want("201", "main.api.document.create.c.b", `{"n":2,"ttl":7}`)
	c.want("201", "main.api.document.create.c.c", `{"ttl":315360000}`)
	c.want(`200 {"now":946684802000,"seq":5,"events":0}`, "main.test.advance", `{"by":2}`)
	c.want("200", "main.api.document.touch.c.a", "")
	c.want(`200 {"now":946684803000,"seq":7,"events":1}`, "main.test.advance", `{"to":"due"}`)
	c.want("200", "main.api.document.get.c.b", "")
	c.want(`200 {"now":946684807000,"seq":8,"events":1}`, "main.test.advance", `{"to":"2000-01-01T00:00:07Z"}`)
	c.want("404", "main.api.document.get.c.b", "")
	c.want(`200 {"now":946684812000,"seq":10,"events":2}`, "main.test.advance", `{"to":946684812}`)
	c.want(`200 {"now":1262044800000,"seq":12,"events":2}`, "main.test.advance", `{"to":"2009-12-29T00:00:00Z"}`)
	c.want(`200 {"now":1262044800000,"seq":12,"events":0}`, "main.test.advance", `{"to":"due"}`)
	c.wantLog("main",
		"0 c.CollectionCreated", "0 c.DocumentCreated a", "0 c.DocumentCreated b", "0 c.DocumentCreated c",
		"2000 c.DocumentTouched a", "3000 c.DocumentExpiring b", "7000 c.DocumentExpired b",
		"8000 c.DocumentExpiring a", "12000 c.DocumentExpired a", "315359996000 c.DocumentExpiring c", "315360000000 c.DocumentExpired c")
}

// TestClockRequestsRefused: what cannot be done has its code and one line, and changes nothing.
func TestClockRequestsRefused(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	c.want("200", "main.test.advance", `{"by":5}`)
	for request, want := range map[[2]string]string{
		{"main.test.advance", `{"to":"1999-12-31T23:59:59Z"}`}:  "400 bad_request: the clock does not go back: it shows 2000-01-01T00:00:05Z",
		{"main.test.advance", `{"to":946684804}`}:               "400 bad_request: the clock does not go back",
		{"main.test.advance", `{"by":-1}`}:                      "400 bad_request: by -1: use whole seconds of 0 or more",
		{"main.test.advance", `{"by":1.5}`}:                     "400 bad_request: by 1.5: use",
		{"main.test.advance", `{"by":"5"}`}:                     `400 bad_request: by "5": use`,
		{"main.test.advance", `{"by":""}`}:                      `400 bad_request: by "": use`,
		{"main.test.advance", `{"by":null}`}:                    "400 bad_request: by null: use",
		{"main.test.advance", `{"by":1,"to":"due"}`}:            "400 bad_request: a move has either by or to",
		{"main.test.advance", `{}`}:                             "400 bad_request: a move has either by or to",
		{"main.test.advance", ``}:                               "400 bad_request: a move has either by or to",
		{"main.test.advance", `[]`}:                             "400 bad_request: the move must be a JSON object",
		{"main.test.advance", `{"by":1,"until":2}`}:             `400 bad_request: unknown member "until" of the move: use by and to`,
		{"main.test.advance", `{"to":253402300800}`}:            "400 bad_request: to 253402300800: use a time like",
		{"main.test.advance", `{"to":"10000-01-01T00:00:00Z"}`}: `400 bad_request: to "10000-01-01T00:00:00Z": use`,
		{"main.test.advance", `{"to":"soon"}`}:                  `400 bad_request: to "soon": use a time like 2015-05-17T10:05:03Z or Unix seconds, from 1970 to 9999, or "due"`,
		{"main.test.advance", `{"by":252455615995}`}:            "400 bad_request: the clock ends with the year 9999: it shows 2000-01-01T00:00:05Z",
		{"none.test.advance", `{"by":1}`}:                       "404 database_not_found: database none is not open: open it by a request on lapse.none.test.open",
		{"none.test.now", ``}:                                   "404 database_not_found",
		{"none.test.drop", ``}:                                  "404 database_not_found",
		{"main.test.open", ``}:                                  "409 database_exists: database main is open",
		{"t1.test.open", `{"at":"1969-12-31T23:59:59Z"}`}:       `400 bad_request: at "1969-12-31T23:59:59Z": use a time like 2015-05-17T10:05:03Z or Unix seconds, from 1970 to 9999`,
		{"t1.test.open", `{"now":1}`}:                           `400 bad_request: unknown member "now"`,
		{"T1.test.open", ``}:                                    `400 bad_request: database name "T1": use 1 to 32 of a-z`,
		{"main.test.now", `{"at":1}`}:                           "400 bad_request: unknown member",
		{"main.test.rewind", ``}:                                `400 bad_request: unknown request "rewind": use open, now, advance or drop`,
		{"main.test.now.x", ``}:                                 "400 bad_request: unknown request",
	} {
		code, reply := c.ask(request[0], request[1])
		var fault struct {
			Code           int
			Error, Message string
		}
		_ = json.Unmarshal([]byte(reply), &fault)
		got := fmt.Sprintf("%s %s: %s", code, fault.Error, fault.Message)
		if !strings.HasPrefix(got, want) || fmt.Sprint(fault.Code) != code {
			t.Errorf("%v: %s, want %s", request, got, want)
		}
	}
	c.want(`200 {"now":946684805000}`, "main.test.now", "")
	for _, subject := range []string{"t1.api.status", "t1.mutations.document.upsert.c.a"} {
		if _, err := c.Request("lapse."+subject, nil, patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	for i := 1; i < host.MaxDatabases; i++ {
		c.want("201", fmt.Sprintf("t%d.test.open", i), "")
	}
	c.want(`429 {"code":429,"error":"overloaded","message":"128 databases are open: drop one first"}`, "more.test.open", "")
	c.want("204", "main.test.drop", "")
	c.want(`201 {"database":"more","now":1500}`, "more.test.open", `{"at":"1970-01-01T00:00:01.5Z"}`)
}

// TestClockMovesAfterWhatCame: acknowledged mutations and requests under way are judged before
// the clock moves, whoever sent them.
func TestClockMovesAfterWhatCame(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	js, err := jetstream.New(c.connect())
	check(t, err)
	c.want("201", "main.api.collection.create.c", `{"defaultTtl":-1}`)
	large := strings.Repeat("x", 1<<20)
	for round := range 20 {
		at := 1000 * round
		replies := make(chan *nats.Msg, 20)
		inbox := c.NewInbox()
		sub, err := c.ChanSubscribe(inbox, replies)
		check(t, err)
		if _, err := js.Publish(t.Context(), fmt.Sprintf("lapse.main.mutations.document.upsert.c.m%d", round), []byte(`{"ttl":1}`)); err != nil {
			t.Fatal(err)
		}
		for i, body := range []string{`{"ttl":1}`, fmt.Sprintf(`{"ttl":1,"large":%q}`, large), `{"ttl":1}`} {
			check(t, c.PublishRequest(fmt.Sprintf("lapse.main.api.document.upsert.c.r%d-%d", round, i), inbox, []byte(body)))
		}
		check(t, c.PublishRequest("lapse.main.api.batch.c", inbox, fmt.Appendf(nil, `{"operations":[{"op":"upsert","id":"b%d","body":{"ttl":1}}]}`, round)))
		code, reply := c.ask("main.test.advance", `{"by":1}`)
		if !strings.Contains(reply, `"events":5`) || !strings.Contains(reply, fmt.Sprintf(`"now":%d`, 946684800000+at+1000)) {
			t.Fatalf("round %d: %s %s", round, code, reply)
		}
		if len(replies) != 4 {
			t.Fatalf("round %d: %d of 4 requests were answered before the move", round, len(replies))
		}
		check(t, sub.Unsubscribe())
	}
}

// TestClockSubscribers: after a move a subscriber has what expired, without another one, and
// a client that goes away does not end a move.
func TestClockSubscribers(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	c.want("201", "main.api.collection.create.c", `{"defaultTtl":60}`)
	c.want("201", "main.api.document.create.c.a", `{"n":1}`)
	js, err := jetstream.New(c.Conn)
	check(t, err)
	expired := jetstream.ConsumerConfig{Durable: "d", FilterSubject: "lapse.main.events.*.DocumentExpired", AckPolicy: jetstream.AckExplicitPolicy}
	durable, err := js.CreateConsumer(t.Context(), "LAPSE_main", expired)
	check(t, err)
	ordered, err := js.OrderedConsumer(t.Context(), "LAPSE_main", jetstream.OrderedConsumerConfig{FilterSubjects: []string{expired.FilterSubject}})
	check(t, err)
	gone := c.connect()
	check(t, gone.PublishRequest("lapse.main.test.advance", gone.NewInbox(), []byte(`{"by":"1m"}`)))
	gone.Flush()
	gone.Close()
	for _, consumer := range []jetstream.Consumer{durable, ordered} {
		m, err := consumer.Next(jetstream.FetchMaxWait(patience))
		if err != nil || string(m.Data()) != `{"id":"a","n":1}` && !strings.Contains(string(m.Data()), `"n":1`) {
			t.Fatalf("%+v, %v", m, err)
		}
		if consumer == durable {
			check(t, m.DoubleAck(t.Context()))
		}
	}
	c.want(`200 {"now":946684860000,"seq":4,"events":0}`, "main.test.advance", `{"by":0}`)
	c.want("200", "main.api.status", "")
	if _, reply := c.ask("main.api.status", ""); !strings.Contains(reply, `"test":true`) {
		t.Error(reply)
	}
}

// TestClockReaders: the readers of the Go client work in any year: durables, handlers, and
// feeds from a time.
func TestClockReaders(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	for _, year := range []int{1970, 2026, 9998} {
		at := time.Date(year, 5, 1, 0, 0, 0, 0, time.UTC)
		lapse, err := client.New(c.Conn, client.WithDatabase(fmt.Sprint("y", year)), client.WithTimeout(patience))
		check(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		clock := lapse.TestClock()
		check(t, clock.Open(ctx, at))
		if err := clock.Open(ctx, at); !errors.Is(err, client.ErrDatabaseExists) {
			t.Errorf("%d: opened again: %v", year, err)
		}
		sessions, err := lapse.CreateCollection(ctx, "sessions", client.DefaultTTL(time.Minute))
		check(t, err)
		for _, id := range []string{"a", "b"} {
			if _, err := client.Upsert(ctx, sessions, id, struct{}{}); err != nil {
				t.Fatal(err)
			}
			if moved, err := clock.Advance(ctx, time.Hour); err != nil || moved.Events != 1 {
				t.Fatalf("%+v, %v", moved, err)
			}
		}
		types := client.OfType(client.DocumentExpired)
		for want, opts := range map[string][]client.FeedOption{
			"a b": {client.FromStart()},
			"b":   {client.FromTime(at.Add(time.Hour))},
			"a":   {client.FromStart(), client.UntilTime(at.Add(time.Hour))},
		} {
			for _, durable := range [][]client.FeedOption{nil, {client.Durable(strings.ReplaceAll("d "+want, " ", "-"))}} {
				var ids []string
				for e, err := range lapse.Changes(ctx, append(append(opts, types, client.UntilNow()), durable...)...) {
					if err != nil {
						t.Fatalf("%d, %s: %v", year, want, err)
					}
					ids = append(ids, string(e.ID))
				}
				if got := strings.Join(ids, " "); got != want {
					t.Errorf("%d, with %d options of a durable: %q, want %q", year, len(durable), got, want)
				}
			}
		}
		handled := make(chan string, 2)
		err = lapse.Handle(ctx, func(_ context.Context, e *client.Event) error {
			handled <- string(e.ID)
			return nil
		}, client.Durable("handler"), client.FromStart(), types, client.UntilNow())
		if err != nil || len(handled) != 2 {
			t.Errorf("%d: %d events were handled, %v", year, len(handled), err)
		}
	}
}

// TestClockConsole: each database has a console by its clock while it is open, main at / too,
// and the console moves the clock.
func TestClockConsole(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	c.want("201", "t1.test.open", `{"at":"2030-01-01T00:00:00Z"}`)
	for _, step := range []struct{ request, path, has string }{
		{"", "/api/console", `"database":"main","write":true,"now":946684800000,"test":true,`},
		{"", "/main/api/console", `"databases":["main","t1"]`},
		{"", "/t1/api/console", `"database":"t1","write":true,"now":1893456000000,`},
		{"", "/t1/api/status", `"test":true`},
		{"t1.test.drop", "/t1/api/console", "404"},
		{"main.test.drop", "/main/api/console", "404"},
		{"main.test.open", "/main/api/console", `"database":"main"`},
		{"main.api.collection.create.c", "POST /api/advance?by=90s", `{"events":0,"now":946684890000,"seq":`},
		{"main.test.now", "POST /main/api/advance", `"events":0,`}, // nothing is due
		{"", "POST /api/advance?by=1.5h", "400"},
		{"", "POST /api/advance?to=due", "400"},
		{"", "GET /api/advance?by=1h", "405"},
	} {
		if step.request != "" {
			c.want("20", step.request, "")
		}
		method, path, both := strings.Cut(step.path, " ")
		if !both {
			method, path = http.MethodGet, step.path
		}
		request, err := http.NewRequestWithContext(t.Context(), method, c.console+path, nil)
		check(t, err)
		request.Header.Set("Origin", c.console)
		request.Header.Set("Lapse-Console", "1")
		response, err := http.DefaultClient.Do(request)
		check(t, err)
		body, err := io.ReadAll(response.Body)
		check(t, err)
		response.Body.Close()
		if got := response.Status + string(body); !strings.Contains(got, step.has) {
			t.Errorf("after %q %s is %s, want %s", step.request, step.path, got, step.has)
		}
	}
}

// play writes a scene into a database: mutations by request and by message, batches, warnings,
// holds, repeats and an overdue release.
func (c *clocks) play(db string) {
	js, err := jetstream.New(c.Conn)
	check(c, err)
	c.want("201", db+".test.open", "")
	c.want("201", db+".api.collection.create.c", `{"defaultTtl":60,"warnBefore":10}`)
	for i := range 10 {
		c.want("201", fmt.Sprintf("%s.api.document.create.c.%d", db, i), fmt.Sprintf(`{"n":%d,"ttl":%d}`, i, 5+i*7), "Nats-Msg-Id", fmt.Sprint(i))
		c.want("201", fmt.Sprintf("%s.api.document.create.c.%d", db, i), fmt.Sprintf(`{"n":%d,"ttl":%d}`, i, 5+i*7), "Nats-Msg-Id", fmt.Sprint(i))
	}
	c.want("200", db+".api.document.hold.c.3", "")
	c.want("200", db+".api.batch.c", `{"operations":[{"op":"upsert","id":"x","body":{"ttl":3}},{"op":"delete","id":"0"},{"op":"touch","id":"1"}],"atomic":true}`)
	if _, err := js.Publish(context.Background(), "lapse."+db+".mutations.document.patch.c.2", []byte(`{"p":1}`)); err != nil {
		c.Fatal(err)
	}
	for cursor, read := "", 0; ; {
		code, reply := c.ask(db+".api.query.c", fmt.Sprintf(`{"limit":4,"cursor":%q}`, cursor))
		var page struct {
			Documents []json.RawMessage
			Cursor    string
		}
		if err := json.Unmarshal([]byte(reply), &page); err != nil || code != "200" {
			c.Errorf("%s: %s %s", db, code, reply)
			break
		}
		if read, cursor = read+len(page.Documents), page.Cursor; cursor == "" {
			if read != 10 {
				c.Errorf("%s: %d documents by pages", db, read)
			}
			break
		}
	}
	c.want("200", db+".test.advance", `{"by":40}`)
	c.want("200", db+".api.document.release.c.3", "")
	c.want("200", db+".api.collection.replace.c", `{"defaultTtl":20,"warnBefore":30}`)
	c.want("201", db+".api.document.upsert.c.y", `{}`)
	c.want("200", db+".test.advance", `{"to":"due"}`)
	c.want("201", db+".api.document.create.c.0", `{"n":0,"ttl":5}`, "Nats-Msg-Id", "0")
	c.want("200", db+".test.advance", `{"by":"10d"}`)
}

// TestClockSameLog: the same requests, messages and moves give the same log, whatever other
// clients do with their databases, and a consumer and pages see only their own.
func TestClockSameLog(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	logs := make([]string, 50)
	var playing sync.WaitGroup
	next := atomic.Int64{}
	for range 16 {
		playing.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(logs)); i = next.Add(1) - 1 {
				db := fmt.Sprint("t", i)
				c.play(db)
				c.consume(db)
				logs[i] = strings.ReplaceAll(c.log(db), db, "db")
				c.want("204", db+".test.drop", "")
			}
		})
	}
	playing.Wait()
	for i, log := range logs {
		if log != logs[0] || !strings.Contains(log, "946684840000 c.DocumentReleased") {
			t.Fatalf("log %d is\n%s\nand log 0\n%s", i, log, logs[0])
		}
	}
}

// consume reads what expired in a played database by a durable.
func (c *clocks) consume(db string) {
	c.Helper()
	lapse, err := client.New(c.Conn, client.WithDatabase(db), client.WithTimeout(patience))
	check(c, err)
	expired := 0
	for _, err := range lapse.Changes(context.Background(), client.Durable("d"), client.FromStart(), client.UntilNow(), client.OfType(client.DocumentExpired)) {
		if err != nil {
			c.Error(err)
			return
		}
		expired++
	}
	if want := strings.Count(c.log(db), ".DocumentExpired "); expired != want {
		c.Errorf("%s: a durable reads %d of %d expiries", db, expired, want)
	}
}

// TestLoad: a database goes on with an exported log as with its own. What is overdue at its
// last event expires at the first move.
func TestLoad(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	c.play("t1")
	c.want("200", "t1.api.batch.c", `{"operations":[{"op":"upsert","id":"a","body":{"ttl":5}},{"op":"upsert","id":"b","body":{"ttl":5}}]}`,
		"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	c.want("200", "t1.test.advance", `{"by":5}`)
	_, now := c.ask("t1.test.now", "")
	log := c.export("t1")
	if n := strings.Count(log, `"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`); n != 2 {
		t.Errorf("%d events have the trace context of the batch, want 2:\n%s", n, log)
	}
	end := strings.LastIndex(log[:len(log)-1], "\n") + 1
	c = startClocks(t, host.Test{Load: strings.NewReader(log[:end])})
	c.want("200 "+now, "main.test.now", "")
	c.want("404", "main.api.document.get.c.b", "")
	if got := c.export("main"); got != log[:end] {
		t.Errorf("before a move it has\n%s, want\n%s", got, log[:end])
	}
	c.want("200 "+strings.TrimSuffix(now, "}"), "main.test.advance", `{"by":0}`)
	if got := c.export("main"); got != log {
		t.Errorf("it has\n%s, want\n%s", got, log)
	}
	var last struct{ Seq int }
	check(t, json.Unmarshal([]byte(log[end:]), &last))
	code, reply := c.ask("main.api.document.restore.c.b", `{}`)
	if want := fmt.Sprintf(`"_etag":"%d"`, last.Seq+1); code != "201" || !strings.Contains(reply, want) {
		t.Errorf("restore: %s %s, want %s", code, reply, want)
	}
	c.want("201 "+strings.Replace(now, "{", `{"database":"t2",`, 1), "t2.test.open", "")
}

// export returns what lapse export prints of a database.
func (c *clocks) export(db string) string {
	c.Helper()
	lapse, err := client.New(c.Conn, client.WithDatabase(db))
	check(c, err)
	var lines []byte
	for e, err := range lapse.Changes(context.Background(), client.FromStart(), client.UntilNow()) {
		check(c, err)
		lines = append(e.Schema().AppendJSON(lines), '\n')
	}
	return string(lines)
}

// TestDatabasesComeAndGo: databases that clients open, write, move and drop at once do not
// see each other, and leave no stream and no goroutine.
func TestDatabasesComeAndGo(t *testing.T) {
	t.Parallel()
	c := startClocks(t, host.Test{})
	rounds := stress.Pick(3, 60)
	var working sync.WaitGroup
	for worker := range 16 {
		working.Go(func() {
			for round := range rounds {
				db := fmt.Sprintf("w%d-%d", worker, round%2)
				c.want(fmt.Sprintf(`201 {"database":%q,"now":%d}`, db, worker*1000), db+".test.open", fmt.Sprintf(`{"at":%d}`, worker))
				c.want("404", db+".api.document.get.c.x", "")
				c.want("201", db+".api.collection.create.c", `{"defaultTtl":5}`)
				c.want("201", db+".api.document.create.c.x", `{}`, "Nats-Msg-Id", "same")
				c.want(fmt.Sprintf(`200 {"now":%d,"seq":4,"events":1}`, worker*1000+5000), db+".test.advance", `{"to":"due"}`)
				c.want("204", db+".test.drop", "")
			}
		})
	}
	working.Wait()
	js, err := jetstream.New(c.Conn)
	check(t, err)
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		if !strings.HasPrefix(name, "LAPSE_main") {
			t.Errorf("stream %s is still there", name)
		}
	}
	c.want(`200 {"now":946684800000}`, "main.test.now", "")
}

// TestClockRuns: with the machine's time deadlines pass by themselves, and moves add to it.
func TestClockRuns(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := startClocks(t, host.Test{At: began, Runs: true})
	c.want("201", "main.api.collection.create.c", `{"defaultTtl":1}`)
	c.want("201", "main.api.document.create.c.a", `{}`)
	js, err := jetstream.New(c.Conn)
	check(t, err)
	expired, err := js.OrderedConsumer(t.Context(), "LAPSE_main", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"lapse.main.events.*.DocumentExpired"}})
	check(t, err)
	if _, err := expired.Next(jetstream.FetchMaxWait(patience)); err != nil {
		t.Fatal(err)
	}
	c.want("201", "main.api.document.create.c.b", `{"ttl":3600}`)
	_, reply := c.ask("main.test.advance", `{"by":"1h"}`)
	var moved struct{ Now, Events int64 }
	check(t, json.Unmarshal([]byte(reply), &moved))
	if moved.Events != 1 || moved.Now < began.Add(time.Hour).UnixMilli() || moved.Now > time.Now().Add(time.Hour).UnixMilli() {
		t.Error(reply)
	}
}

var check = harness.Check
