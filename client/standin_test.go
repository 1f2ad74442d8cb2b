package client_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// standin is a NATS server with a log stream and the replies that the test prepares. Its
// user "app" may do what the client needs.
type standin struct {
	t      *testing.T
	server *server.Server
	nc     *nats.Conn
	js     jetstream.JetStream

	mu       sync.Mutex
	answers  map[string]answer
	requests []*nats.Msg
}

// answer returns the status and body of the reply to a request's body. Status 0 means no
// reply.
type answer func(body []byte) (int, string)

// patience is the timeout of waits that should be short.
const patience = time.Minute

func newStandin(t *testing.T) *standin {
	t.Helper()
	ns := harness.StartNATS(t, &server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{
			{Username: "lapse", Password: "x"},
			{Username: "nobody", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{">"}}}},
			{Username: "fixed", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.CREATE.>"}}}},
			{Username: "numb", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.>"}}}},
			{Username: "app", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{
				Allow: []string{
					"lapse.*.api.>", "lapse.*.mutations.>", "$JS.ACK.>", "$JS.API.CONSUMER.MSG.NEXT.*.*",
					"$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.DELETE.*.*",
					"$JS.API.CONSUMER.UNPIN.*.*", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*",
				},
			}}},
		},
	})
	s := &standin{t: t, server: ns, answers: map[string]answer{}}
	s.nc = s.connect("lapse")
	var err error
	s.js, err = jetstream.New(s.nc)
	check(t, err)
	return s
}

func (s *standin) connect(user string, opts ...nats.Option) *nats.Conn {
	s.t.Helper()
	nc, err := nats.Connect("", append(opts, nats.InProcessServer(s.server), nats.UserInfo(user, "x"), nats.Timeout(patience), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			s.t.Logf("%s: %v", user, err)
		}))...)
	check(s.t, err)
	s.t.Cleanup(nc.Close)
	return nc
}

// client connects as the user app.
func (s *standin) client(opts ...client.Option) *client.Client {
	s.t.Helper()
	return s.as("app", opts...)
}

// as connects as a user, with a timeout that suffices on a busy machine.
func (s *standin) as(user string, opts ...client.Option) *client.Client {
	s.t.Helper()
	return s.over(s.connect(user), opts...)
}

// over uses a connection, with a timeout that suffices on a busy machine.
func (s *standin) over(nc *nats.Conn, opts ...client.Option) *client.Client {
	s.t.Helper()
	c, err := client.New(nc, append([]client.Option{client.WithTimeout(patience)}, opts...)...)
	check(s.t, err)
	return c
}

// stream returns the log.
func (s *standin) stream() jetstream.Stream {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), "LAPSE_main")
	check(s.t, err)
	return stream
}

// subscribe answers what is sent to a subject, from now on.
func (s *standin) subscribe(subject string, answer nats.MsgHandler) *nats.Subscription {
	s.t.Helper()
	sub, err := s.nc.Subscribe(subject, answer)
	check(s.t, err)
	check(s.t, s.nc.Flush())
	return sub
}

// importedAPI makes a client read as one whose account imports the log's API.
var importedAPI = client.APIPrefix("$JS.API")

// both calls test for a client that pulls, and for one with imports.
func both(t *testing.T, test func(t *testing.T, opts ...client.Option)) {
	t.Helper()
	t.Run("pull", func(t *testing.T) { test(t) })
	t.Run("imported", func(t *testing.T) { test(t, importedAPI) })
}

// serve answers requests on lapse.main.api.
func (s *standin) serve() *standin {
	s.t.Helper()
	s.subscribe("lapse.main.api.>", func(m *nats.Msg) {
		s.mu.Lock()
		a, ok := s.answers[strings.TrimPrefix(m.Subject, "lapse.main.api.")]
		s.requests = append(s.requests, m)
		s.mu.Unlock()
		status, body := 404, `{"code":404,"error":"document_not_found","message":"no answer laid out"}`
		if ok {
			status, body = a(m.Data)
		}
		if status == 0 {
			return // no reply
		}
		r := nats.NewMsg(m.Reply)
		r.Header.Set(schema.HeaderStatus, strconv.Itoa(status))
		r.Header.Set(schema.HeaderSeq, "9")
		r.Data = []byte(body)
		_ = m.RespondMsg(r)
	})
	return s
}

func (s *standin) answer(tail string, status int, body string) {
	s.respond(tail, func([]byte) (int, string) { return status, body })
}

func (s *standin) respond(tail string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[tail] = a
}

// bodies returns the bodies of the requests with a subject that ends in tail.
func (s *standin) bodies(tail string) (bodies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.requests {
		if strings.HasSuffix(m.Subject, tail) {
			bodies = append(bodies, string(m.Data))
		}
	}
	return bodies
}

// last returns the most recent request.
func (s *standin) last() *nats.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[len(s.requests)-1]
}

func (s *standin) collection(c *client.Client) *client.Collection {
	s.t.Helper()
	s.answer("collection.get.orders", 200, `{"id":"orders","defaultTtl":3600,"indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/total"}]},"previousImages":true,"documents":2,"bytes":80,"_ts":5,"_etag":"1"}`)
	coll, err := c.Collection(s.t.Context(), "orders")
	check(s.t, err)
	return coll
}

// log creates the streams of the log and of the mutations.
func (s *standin) log() *standin {
	s.t.Helper()
	must(s.t)(s.js.CreateStream(s.t.Context(), jetstream.StreamConfig{Name: "LAPSE_main", Subjects: []string{"lapse.main.events.>"}}))
	must(s.t)(s.js.CreateStream(s.t.Context(), jetstream.StreamConfig{Name: "LAPSE_main_MUTATIONS", Subjects: []string{"lapse.main.mutations.>"}}))
	return s
}

// happen appends an event to the log.
func (s *standin) happen(e schema.Event) {
	s.t.Helper()
	if e.Time == 0 {
		e.Time = time.Now().UnixMilli()
	}
	m := nats.NewMsg("lapse.main.events." + e.EventTokens())
	e.Headers(func(name, value string) { m.Header.Set(name, value) })
	m.Data = e.Body
	must(s.t)(s.js.PublishMsg(context.Background(), m))
}

func (s *standin) created(collection, id string) {
	s.t.Helper()
	s.happen(schema.Event{Type: schema.DocumentCreated, Collection: schema.CollectionName(collection), ID: schema.DocumentID(id), Body: fmt.Appendf(nil, `{"id":%q}`, id)})
}

func (s *standin) expired(collection, id, body string) {
	s.t.Helper()
	s.deadline(schema.DocumentExpired, collection, id, body)
}

func (s *standin) deadline(t schema.EventType, collection, id, body string) {
	s.t.Helper()
	s.happen(schema.Event{Type: t, Collection: schema.CollectionName(collection), ID: schema.DocumentID(id), Previous: 1,
		Deadline: schema.Deadline{At: 100, TTL: 5, Rule: schema.RuleDocument}, Body: []byte(body)})
}

func (s *standin) internal() {
	s.t.Helper()
	s.happen(schema.Event{Type: schema.WriterStarted, Collection: schema.InternalCollection})
}

var check, must = harness.Check, harness.Must

// patient returns a context that ends after what should take less.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
