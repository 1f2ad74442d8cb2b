package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// lapse test, section 13 of the contract: databases in memory, each with a clock that
// requests move. A database is a processor like any other on the embedded server, with a
// Timekeeper for its clock; what is special is here.
//
// Requests on lapse.<db>.test.> arrive on one connection. Those about one database are
// answered one after the other, in the order of their arrival (waiting): an open after a
// drop has to find it gone, and two moves of one clock have an order. Those about different
// databases are answered at the same time. A queue exists while it has requests, and its
// goroutine with it.
//
// all has nil for a database that opens, so that another open of it is refused; close waits
// for requests under way before it stops the databases, so that none is opened meanwhile.

// Test says where the clocks of databases in memory begin. Clients open, move and drop the
// databases by requests on lapse.<db>.test.>; there is main at first.
type Test struct {
	// At is the time at which the clocks begin, unless a client says otherwise.
	At time.Time
	// Runs lets the clocks run with the machine's elapsed time. Then At is that of main, and
	// others begin at the machine's time.
	Runs bool
	// Load is an exported log with which main begins, at its last event, as do the others;
	// nil for none.
	Load io.Reader
}

// testCache is the size in bytes of the cache that all databases share.
const testCache = 32 << 20

// tests are the databases of a Test. mu guards closed, all and waiting, and the writers of
// monitors; it is held for moments only, never while a database starts or stops.
type tests struct {
	Test
	target    *target
	options   processor.Options // of each database
	monitors  *monitors
	consoles  *movedConsoles
	failed    chan error // receives what ends Run
	ctx       context.Context
	answering sync.WaitGroup

	mu      sync.Mutex
	closed  bool                                  // no request is answered any more
	all     map[schema.DatabaseName]*testDatabase // with nil for one that opens
	waiting map[string][]*nats.Msg                // by the database's name in the subject
}

// testDatabase is one that is open. dropped is closed when it stops, by request or at the
// end, and ends the watch over its processor.
type testDatabase struct {
	name      schema.DatabaseName
	clock     *clock.Timekeeper
	processor *processor.Processor
	service   *nats.Conn
	monitor   *monitor.Monitor
	dropped   chan struct{}
}

// serveTest serves the databases of a Test until ctx ends or the NATS server fails.
func (r *run) serveTest(ctx context.Context) error {
	options := r.processorOptions()
	options.Projection.CacheBytes = testCache
	options, release := options.Shared(MaxDatabases)
	defer release()
	var err error
	if options.Process, err = r.join(ctx, options); err != nil {
		return err
	}
	serving, end := context.WithCancel(context.Background())
	s := &tests{Test: *r.Test, target: r.target, options: options, monitors: &r.monitors, failed: make(chan error, 1), ctx: serving,
		all: make(map[schema.DatabaseName]*testDatabase), waiting: make(map[string][]*nats.Msg)}
	defer func() { end(); s.close() }()
	if s.consoles, err = r.console.moved(r.target); err != nil {
		return err
	}
	defer s.consoles.close()
	if err := s.openMain(ctx); err != nil {
		return err
	}
	// Main is open by now: a request that is answered finds it.
	requests, err := r.target.services[0].Subscribe(gate.AnyDatabase.TestSubjects()+">", s.receive)
	if err == nil {
		err = r.target.services[0].Flush()
	}
	if err != nil {
		return err
	}
	defer func() { _ = requests.Unsubscribe() }()
	s.consoles.serve(r.console, options.Logger)
	endCosmos, err := r.serveCosmos(s.names)
	if err != nil {
		return err
	}
	defer endCosmos()
	r.Events(Started{})
	r.Events(Ready{Process: r.target.node, URL: r.target.url, Address: r.target.address, Console: r.console.URL, Cosmos: r.cosmos.Serving(),
		Databases: []Served{{schema.DefaultDatabase, observe.Writer}}, Live: func() []string { return live(r.monitors.all(), true) }})
	select {
	case <-ctx.Done():
		return nil
	case err = <-s.failed:
	case err = <-r.target.failed:
	case err = <-r.target.closed:
	}
	return err
}

// close stops the databases once no request is under way.
func (s *tests) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.answering.Wait()
	var stopping sync.WaitGroup
	for _, db := range s.all {
		stopping.Go(func() { s.stop(db) })
	}
	stopping.Wait()
}

// stop stops a database. Its streams stay.
func (s *tests) stop(db *testDatabase) {
	close(db.dropped)
	if err := db.processor.Stop(); err != nil {
		s.options.Logger.Warn("the processor did not stop cleanly", "database", string(db.name), "err", err)
	}
	// Closing it on purpose is no failure.
	db.service.SetClosedHandler(nil)
	db.service.Close()
}

// fail ends Run.
func (s *tests) fail(db schema.DatabaseName, err error) {
	select {
	case s.failed <- fmt.Errorf("database %s failed: %w", db, err):
	default: // one error is enough
	}
}

// open opens a database whose clock begins at a time in Unix ms. It is empty, or begins
// with a log, to whose end the clock moves. After an error there is no such database.
func (s *tests) open(name schema.DatabaseName, at int64, log iter.Seq2[schema.Line, error]) (_ *testDatabase, err error) {
	if err := s.reserve(name); err != nil {
		return nil, err
	}
	db := &testDatabase{name: name, clock: clock.NewManual(time.UnixMilli(at), s.Runs), monitor: monitor.NewMonitor(name), dropped: make(chan struct{})}
	if db.service, err = s.target.server.ConnectService(); err == nil {
		if db.processor, err = s.start(db, log); err != nil {
			db.service.Close()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.all, name)
		return nil, err
	}
	s.all[name] = db
	s.monitors.add(db.monitor)
	return db, s.consoles.show(db)
}

// openMain opens the first database, with the log to load if there is one: at its end the
// clocks of the others begin, too.
func (s *tests) openMain(ctx context.Context) error {
	if s.Load == nil {
		_, err := s.open(schema.DefaultDatabase, s.At.UnixMilli(), nil)
		return err
	}
	main, err := s.open(schema.DefaultDatabase, 0, schema.ReadEvents(ctx, s.Load))
	if err != nil {
		return fmt.Errorf("load the log: %w", err)
	}
	s.At = time.UnixMilli(main.clock.Millis())
	return nil
}

// names returns the databases that are open.
func (s *tests) names() (names []schema.DatabaseName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, db := range s.all {
		if db != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// reserve makes a place for a database that opens.
func (s *tests) reserve(name schema.DatabaseName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.all[name]; there {
		return schema.ErrDatabaseExists.With("database %s is open: drop it first, or use another name", name)
	}
	if len(s.all) == MaxDatabases {
		return schema.ErrOverloaded.With("%d databases are open: drop one first", MaxDatabases)
	}
	s.all[name] = nil
	return nil
}

// start starts a processor on an in-memory projection. A failure of it, or of its
// connection, ends the run: a test needs to fail, not to wait.
func (s *tests) start(db *testDatabase, log iter.Seq2[schema.Line, error]) (*processor.Processor, error) {
	o := s.options.InMemory()
	o.Database, o.Dir, o.Monitor, o.Timekeeper = db.name, "projection", db.monitor, db.clock
	o.Load = log
	o.Logger = o.Logger.With("database", string(db.name))
	c := s.target.Connections
	// Streams in memory have no files to check, and nobody else serves them.
	c.Service, c.Shared, c.Checked, c.Only = db.service, true, true, true
	p, err := processor.Start(s.ctx, c, o)
	if err != nil {
		return nil, err
	}
	s.target.server.AddDatabase(db.name)
	db.service.SetClosedHandler(func(nc *nats.Conn) { s.fail(db.name, closedForGood(nc)) })
	go func() {
		select {
		case err := <-p.Failed():
			s.fail(db.name, err)
		case <-db.dropped:
		}
	}()
	return p, nil
}

// drop removes a database with its streams and their consumers. First the gate lets clients
// no longer read its log, then its processor ends, then the streams go, of which the
// processor would report the loss.
func (s *tests) drop(db *testDatabase) error {
	s.target.server.RemoveDatabase(db.name)
	s.stop(db)
	js, err := s.target.Log.JetStream()
	if err != nil {
		return err
	}
	for stream := range js.StreamNames() {
		if db.name.Owns(stream) {
			err = errors.Join(err, js.DeleteStream(stream))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, db.name)
	s.monitors.remove(db.monitor)
	s.consoles.hide(db)
	return err
}

// receive queues a request after those about the same database, which are answered one after
// another.
func (s *tests) receive(m *nats.Msg) {
	if !schema.IsReply(m.Reply) || !schema.Covers(m.Sub.Subject, m.Subject) {
		return // as for any other request
	}
	name := strings.Split(m.Subject, ".")[1]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.waiting[name] = append(s.waiting[name], m)
	// The first of a queue starts its goroutine, which ends with the last.
	if len(s.waiting[name]) == 1 {
		s.answering.Go(func() { s.answerAll(name) })
	}
}

// answerAll answers the queued requests about a database.
func (s *tests) answerAll(name string) {
	for more := true; more; {
		s.mu.Lock()
		m := s.waiting[name][0]
		s.mu.Unlock()
		s.answer(m, name)
		s.mu.Lock()
		s.waiting[name] = s.waiting[name][1:]
		if more = len(s.waiting[name]) > 0; !more {
			delete(s.waiting, name)
		}
		s.mu.Unlock()
	}
}

// answer answers a request, by the form of section 3: status header, error body, sequence.
func (s *tests) answer(m *nats.Msg, token string) {
	r := testReply{by: s.target.services[0]}
	name, err := schema.ParseDatabaseName(token)
	if err == nil {
		err = s.do(&r, name, strings.TrimPrefix(m.Subject, name.TestSubjects()), m.Data)
	}
	reply := nats.NewMsg(m.Reply)
	if err != nil {
		fault := schema.AsError(err)
		r.code, reply.Data = fault.Code, fault.AppendJSON(nil)
		reply.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(fault.Code))
		reply.Header.Set(micro.ErrorHeader, fault.Error())
	} else if r.body != nil {
		reply.Data, _ = json.Marshal(r.body) // numbers and a name
	}
	reply.Header.Set(schema.HeaderStatus, strconv.Itoa(r.code))
	if r.seq > 0 {
		reply.Header.Set(schema.HeaderSeq, strconv.FormatUint(r.seq, 10))
	}
	_ = r.by.PublishMsg(reply) // or the connection is closed, which ends Run
}

// testReply is the reply to a request.
type testReply struct {
	code int
	body any        // nil for none
	seq  uint64     // of the last event; 0 without a database
	by   *nats.Conn // the database's own, so that it comes after the replies of earlier requests
}

// The bodies of replies; times are Unix ms.
type (
	opened struct {
		Database schema.DatabaseName `json:"database"`
		Now      int64               `json:"now"`
	}
	shown struct {
		Now int64 `json:"now"`
	}
	moved struct {
		Now    int64  `json:"now"`
		Seq    uint64 `json:"seq"`
		Events int    `json:"events"`
	}
)

// do does what a request asks for, and fills in the reply. The body is checked before the
// database is looked up, as for other requests.
func (s *tests) do(r *testReply, name schema.DatabaseName, operation string, data []byte) (err error) {
	var at *int64
	var move schema.ClockMove
	var fault *schema.Error
	switch operation {
	case "open":
		at, fault = schema.ParseClockStart(data)
	case "advance":
		move, fault = schema.ParseClockMove(data)
	case "now", "drop":
		fault = schema.CheckNoBody(operation, data)
	default:
		fault = schema.ErrBadRequest.With("unknown request %.80q: use open, now, advance or drop", operation)
	}
	s.mu.Lock()
	db := s.all[name]
	s.mu.Unlock()
	if db != nil {
		r.seq, r.by = db.processor.Seq(), db.service
	}
	switch {
	case fault != nil:
		return fault
	case operation == "open":
		if db, err = s.open(name, s.beginning(at), nil); err == nil {
			r.code, r.body, r.seq = 201, opened{name, db.clock.Millis()}, db.processor.Seq()
		}
	case db == nil:
		return schema.ErrDatabaseNotFound.With("database %s is not open: open it by a request on %sopen", name, name.TestSubjects())
	case operation == "now":
		r.code, r.body = 200, shown{db.clock.Millis()}
	case operation == "drop":
		r.code, r.seq, r.by = 204, 0, s.target.services[0]
		return s.drop(db)
	default:
		r.code = 200
		var reply moved
		reply, err = db.advance(s.ctx, move)
		r.body, r.seq = reply, reply.Seq
	}
	return err
}

// beginning returns where the clock of a database begins.
func (s *tests) beginning(at *int64) int64 {
	switch {
	case at != nil:
		return *at
	case s.Runs:
		return time.Now().UnixMilli()
	}
	return s.At.UnixMilli()
}

// advance moves the clock, and returns when all that is due by then is in the log and
// folded. It ends with ctx, the end of the run, not with the client that asked.
func (db *testDatabase) advance(ctx context.Context, by schema.ClockMove) (moved, error) {
	now := db.clock.Millis()
	move := &processor.Move{To: now, Due: by.Due}
	switch {
	case by.By != nil:
		move.To += *by.By * 1000
	case by.To != nil:
		move.To = *by.To
	}
	if move.To < now {
		return moved{Seq: db.processor.Seq()}, schema.ErrBadRequest.With("the clock does not go back: it shows %s", observe.Timestamp(time.UnixMilli(now)))
	}
	if move.To > schema.MaxTime {
		return moved{Seq: db.processor.Seq()}, schema.ErrBadRequest.With("the clock ends with the year 9999: it shows %s", observe.Timestamp(time.UnixMilli(now)))
	}
	seq, err := db.processor.Advance(ctx, move)
	return moved{db.clock.Millis(), seq, move.Events}, err
}
