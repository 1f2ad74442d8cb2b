package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/internal/model"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestHistories runs random histories through the state machine and compares
// each step with the model of the rules: replies, events, reads and due times. Few names
// and short times make collisions common. The log is as the machine's driver makes
// it: late, cut short by an abort or a crash, folded in pieces by a follower that
// knows nothing else.
//
//	go test ./processor/machine -run Histories -rapid.checks=10000 -rapid.steps=100
func TestHistories(t *testing.T) {
	stress.OneGoroutine(t)
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		defer h.close()
		for range rapid.IntRange(1, 5).Draw(t, "chapters") {
			t.Repeat(map[string]func(*rapid.T){
				"":         h.check,
				"clock":    h.clock,
				"clock 2":  h.clock,
				"change":   h.change,
				"change 2": h.change,
				"change 3": h.change,
				"change 4": h.change,
				"batch":    h.batch,
				"sweep":    h.sweep,
				"sweep 2":  h.sweep,
				"commit":   h.commit,
				"end":      h.end,
				"follow":   h.follow,
			})
		}
		h.finish(t)
	})
}

var (
	collectionNames = []string{"carts", "orders"}
	documentIDs     = []string{"a", "b", "ü/1"}
)

// history is a machine with its driver, and the model's state for both.
type history struct {
	t        *rapid.T
	fs       *vfs.MemFS
	store    *projections.Store
	machine  *Machine
	follower *projections.Store

	now  int64 // of the driver's clock, ms; it may go back
	time int64 // expected log time

	decided *model.Model    // pending events included
	pending []*schema.Event // decided and not folded,
	taken   int             // of which these were handed out
	folded  *model.Model
	log     []*schema.Event
	causes  uint64
	sent    model.Mutation // the last with a Nats-Msg-Id,
	sentAt  int64          // at this log time
}

func newHistory(t *rapid.T) *history {
	h := &history{t: t, fs: vfs.NewCrashableMem(), now: 1000_000, decided: model.New(), folded: model.New()}
	h.open()
	h.follower = h.openStore(vfs.NewMem())
	return h
}

func (h *history) close() { h.must(h.store.Close()); h.must(h.follower.Close()) }

func (h *history) must(err error) {
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) openStore(fs vfs.FS) *projections.Store {
	store, err := projections.Open("projection", projections.Options{FS: fs, CacheBytes: 1 << 20, MemTableBytes: 64 << 10})
	h.must(err)
	return store
}

// open opens the store in the file system and folds the events of the log beyond it.
func (h *history) open() {
	h.store = h.openStore(h.fs)
	var err error
	h.machine, err = NewMachine(h.store)
	h.must(err)
	h.machine.History = &reluctant{AtHand: AtHand{testHistory{h.store, &h.log}}}
	h.must(h.machine.adopt(bare(h.log[h.store.Cursor().Seq:])))
	h.restarted()
}

// restarted resets the model to a machine that knows only the log.
func (h *history) restarted() {
	h.pending, h.taken = nil, 0
	var err error
	h.folded, err = model.Of(told(h.log...))
	h.must(err)
	h.decided = h.folded.Clone()
	h.time = h.folded.Time
}

// bare returns events as they come from the log.
func bare(events []*schema.Event) []projections.Fact {
	facts := make([]projections.Fact, len(events))
	for i := range events {
		e := *events[i]
		facts[i].Event = &e
	}
	return facts
}

// told returns events as the model knows them.
func told(events ...*schema.Event) []model.Event {
	all := make([]model.Event, len(events))
	for i, e := range events {
		if err := json.Unmarshal(e.AppendJSON(nil), &all[i]); err != nil {
			panic(err)
		}
		if e.MsgID != "" {
			all[i].MsgID, all[i].MsgOp = e.MsgID, e.MsgOp.String()
		}
	}
	return all
}

// called checks the machine after a call: log time follows the clock unless that went
// back, and the new events are stamped with it. It returns them.
func (h *history) called() []*schema.Event {
	h.time = max(h.time, h.now)
	for _, fact := range h.machine.pending[len(h.pending):] {
		e := *fact.Event
		if e.Time != h.time {
			h.t.Fatalf("event %d is stamped %d, log time is %d", e.Seq, e.Time, h.time)
		}
		h.pending = append(h.pending, &e)
	}
	if seq := h.folded.Seq + uint64(len(h.pending)); h.machine.Seq() != seq || h.machine.Pending() != len(h.pending) {
		h.t.Fatalf("the machine is at %d with %d pending, and should be at %d with %d", h.machine.Seq(), h.machine.Pending(), seq, len(h.pending))
	}
	return h.pending[h.decided.Seq-h.folded.Seq:]
}

// logged applies checked events to the decided state.
func (h *history) logged(events ...*schema.Event) {
	for _, e := range events {
		h.t.Logf("    %d at %d %s %s/%s", e.Seq, e.Time, e.Type, e.Collection, e.ID)
		if e.Seq != h.decided.Seq+1 {
			h.t.Fatalf("event %d follows event %d", e.Seq, h.decided.Seq)
		}
		h.must(h.decided.Apply(told(e)[0]))
	}
}

// take takes the pending events, to be appended to the log.
func (h *history) take() {
	facts := h.machine.Take()
	if len(facts) != len(h.pending)-h.taken {
		h.t.Fatalf("%d taken of %d pending, %d were before", len(facts), len(h.pending), h.taken)
	}
	for i, fact := range facts {
		if e := h.pending[h.taken+i]; !reflect.DeepEqual(fact.Event, e) {
			h.t.Fatalf("taken was %v, decided %v", fact.Event, e)
		}
	}
	h.taken = len(h.pending)
}

// acknowledge appends the first n pending events to the log.
func (h *history) acknowledge(n int) {
	for _, e := range h.pending[:n] {
		h.log = append(h.log, e)
		h.must(h.folded.Apply(told(e)[0]))
	}
	h.pending, h.taken = h.pending[n:], h.taken-n
}

func (h *history) commitFirst(n int) {
	h.acknowledge(n)
	h.must(h.machine.Commit(h.folded.Seq))
}

// The steps of a history.

func (h *history) clock(t *rapid.T) {
	h.now += rapid.OneOf(
		rapid.Map(rapid.Int64Range(0, 3), func(s int64) int64 { return s * 1000 }),
		rapid.Map(rapid.Int64Range(0, 20), func(s int64) int64 { return s * 1000 }),
		rapid.Int64Range(0, 2500),
		rapid.SampledFrom([]int64{1000 - h.now%1000, 999 - h.now%1000, max(0, h.sentAt+119_999-h.now), max(0, h.sentAt+120_000-h.now), -3000}),
	).Draw(t, "ms")
}

// reluctant is a History that has each version only when it is asked again.
type reluctant struct {
	AtHand
	asked bool
}

func (r *reluctant) Former(c *schema.Collection, mu *schema.Mutation, seq uint64) (f Former, ok bool, err error) {
	if r.asked = !r.asked; r.asked {
		return Former{}, false, nil
	}
	return r.AtHand.Former(c, mu, seq)
}

func (h *history) change(t *rapid.T) { h.decide(h.wish(t)) }

func mutation(w model.Mutation) *schema.Mutation {
	mu := schema.NewNamedMutation(w.Op, w.Collection, w.ID, []byte(w.Body))
	header := make(schema.Header)
	for name, value := range map[string]string{schema.HeaderIfMatch: w.IfMatch, schema.HeaderRequestID: w.MsgID, schema.HeaderExpireAt: w.ExpireAt, schema.HeaderKeepDeadline: w.Keep} {
		if value != "" {
			header[name] = []string{value}
		}
	}
	mu.SetHeaders(header)
	mu.Recorded, mu.Cause = w.Cause != 0, w.Cause
	return mu
}

func (h *history) decide(w model.Mutation) {
	mu := mutation(w)
	for range 100 {
		v := h.decided.Judge(w, max(h.time, h.now))
		o, err := h.machine.Decide(h.now, mu)
		h.must(err)
		events := h.called()
		if o.Need == NeedLog && len(events) == 0 {
			continue
		}
		if o.Need != NeedCommit {
			h.came(w, v, o, events)
			return
		}
		// Until it is decided, only due entries of the collection may make events.
		for _, e := range events {
			if w.ID != "" || !e.Type.HasDeadline() || string(e.Collection) != w.Collection {
				h.t.Fatalf("%s, to be decided again, made %s", w.Op, e.Type)
			}
		}
		h.logged(events...)
		h.take()
		h.commitFirst(len(h.pending))
	}
	h.t.Fatal("decided again and again")
}

// came compares the outcome and the events of a mutation with the verdict.
func (h *history) came(w model.Mutation, v model.Verdict, o Outcome, events []*schema.Event) {
	if o.Seq != h.machine.Seq() {
		h.t.Fatalf("the answer is of %d, decided is up to %d", o.Seq, h.machine.Seq())
	}
	if o.Repeat != v.Repeats {
		h.t.Fatalf("repeats event %d, should %d", o.Repeat, v.Repeats)
	}
	h.answered(v, o.Code, o.Fault, events)
	rest := h.follows(w, v, events)
	if v.Code >= 400 && w.Cause != 0 {
		if len(rest) != 1 || rest[0].Type != schema.MutationRejected {
			h.t.Fatalf("%v follows, should be a rejection", told(rest...))
		}
		var body struct {
			Error    string
			Mutation struct{ Op, Collection, ID string }
		}
		h.must(json.Unmarshal(rest[0].Body, &body))
		if m := body.Mutation; body.Error != v.Error || m.Op != w.Op || m.Collection != w.Collection || m.ID != w.ID {
			h.t.Fatalf("the rejection is %s", rest[0].Body)
		}
		h.logged(rest...)
	} else if len(rest) > 0 {
		h.t.Fatalf("%s follows, for no reason", rest[0].Type)
	}
	if o.Version != 0 { // a touch that asks for the content
		var err error
		o.Body, err = h.machine.content(mutation(w), o)
		h.must(err)
	}
	h.replied(w, v, o.Body)
}

// follows checks that the events, after expiries, are those of the verdict, and
// returns the rest.
func (h *history) follows(w model.Mutation, v model.Verdict, events []*schema.Event) []*schema.Event {
	for len(events) > 0 && string(events[0].Collection) == w.Collection && (w.ID == "" && events[0].Type.HasDeadline() ||
		events[0].Type == schema.DocumentExpired && string(events[0].ID) == w.ID) {
		h.logged(events[0])
		events = events[1:]
	}
	if v.Event == nil {
		return events
	}
	if len(events) == 0 {
		h.t.Fatalf("nothing follows, should be %s", v.Event.Type)
	}
	got, want := told(events[0])[0], *v.Event
	if body := model.Parse(want.Body); !reflect.DeepEqual(model.Parse(got.Body), body) {
		h.t.Fatalf("the content is %s, should be %v", got.Body, body)
	}
	want.Seq, want.Time, want.Body = got.Seq, got.Time, got.Body
	if w.Cause != 0 {
		want.Cause = fmt.Sprint("mutations/", w.Cause)
	}
	if w.MsgID != "" && want.Collection != "_" {
		want.MsgID, want.MsgOp = w.MsgID, w.Op
	}
	if !reflect.DeepEqual(got, want) {
		h.t.Fatalf("%s follows from %+v, should be %s", got, w, want)
	}
	h.logged(events[0])
	return events[1:]
}

func (h *history) answered(v model.Verdict, code int, fault *schema.Error, events []*schema.Event) {
	name := ""
	if fault != nil {
		name = fault.Name
	}
	if code != v.Code || name != v.Error {
		h.t.Fatalf("answered %d %s, should be %d %s; followed by %v", code, name, v.Code, v.Error, told(events...))
	}
}

// replied compares the body of a reply with the model, which has applied the event.
func (h *history) replied(w model.Mutation, v model.Verdict, body []byte) {
	var want map[string]any
	if v.Code < 400 && v.Repeats == 0 {
		op := w.Op
		if op == "document.touch" && model.Parse([]byte(w.Body))["content"] == true {
			op = "document.get"
		}
		want = h.decided.Reply(op, w.Collection, w.ID)
	}
	if got := model.Parse(body); !reflect.DeepEqual(got, want) {
		h.t.Fatalf("replied %s, should be %v", body, want)
	}
}

func (h *history) batch(t *rapid.T) {
	collection := rapid.SampledFrom(collectionNames).Draw(t, "collection")
	atomic := rapid.Bool().Draw(t, "atomic")
	var wishes []model.Mutation
	var operations []map[string]any
	for range rapid.IntRange(1, 6).Draw(t, "operations") {
		w := model.Mutation{Op: "get", Collection: collection, ID: rapid.SampledFrom(documentIDs).Draw(t, "id")}
		if rapid.IntRange(0, 3).Draw(t, "get") > 0 {
			w = h.documentWish(t, collection)
		}
		operation := map[string]any{"op": strings.TrimPrefix(w.Op, "document."), "id": w.ID, "ifMatch": w.IfMatch}
		if json.Valid([]byte(w.Body)) {
			operation["body"] = json.RawMessage(w.Body)
		} else {
			w.Body = ""
		}
		for name, value := range map[string]string{"expireAt": w.ExpireAt, "keepDeadline": w.Keep} {
			if json.Valid([]byte(value)) {
				operation[name] = json.RawMessage(value)
			} else if value != "" {
				operation[name] = value
			}
		}
		wishes = append(wishes, w)
		operations = append(operations, operation)
	}
	envelope, err := json.Marshal(map[string]any{"operations": operations, "atomic": atomic})
	h.must(err)
	t.Logf("%s: %s", collection, envelope)
	b, fault := schema.ParseBatch(collection, envelope)
	if fault != nil {
		t.Fatal(fault)
	}
	blamed := -1
	var blame model.Verdict
	if atomic {
		blamed, blame = h.blame(wishes)
	}
	run := NewBatchRun(b, 1<<20)
	work := rapid.SampledFrom([]int{0, 100, math.MaxInt}).Draw(t, "work") // in one piece
	o, err := h.machine.DecideBatch(h.now, run, work)
	for ; err == nil && (o.Need == NeedTurn || o.Need == NeedLog); work = max(work, 1) {
		o, err = h.machine.DecideBatch(h.now, run, work)
	}
	h.must(err)
	var body struct {
		Results []struct {
			Code int
			Body json.RawMessage
		}
	}
	h.must(json.Unmarshal(o.Body, &body))
	events := h.called()
	if atomic {
		before := min(int(run.First-h.decided.Seq-1), len(events))
		for _, e := range events[:before] {
			if e.Type != schema.DocumentExpired || !slices.ContainsFunc(wishes, func(w model.Mutation) bool { return w.ID == string(e.ID) }) {
				t.Fatalf("%s of %s comes before the atomic batch", e.Type, e.ID)
			}
		}
		h.logged(events[:before]...)
		events = events[before:]
		if blamed >= 0 && len(events) > 0 {
			t.Fatalf("%d events of a failed atomic batch", len(events))
		}
		for _, e := range events {
			if e.Type == schema.DocumentExpired && !slices.ContainsFunc(wishes, func(w model.Mutation) bool { return w.Op == "document.release" && w.ID == string(e.ID) }) {
				t.Fatalf("%s expires within an atomic batch, which does not release it", e.ID)
			}
		}
	}
	if o.Code != 200 || len(body.Results) != len(wishes) {
		t.Fatalf("answered %d: %s", o.Code, o.Body)
	}
	for i, w := range wishes {
		r := body.Results[i]
		var fault *schema.Error
		if r.Code >= 400 {
			fault = &schema.Error{Name: fmt.Sprint(model.Parse(r.Body)["error"])}
		}
		if w.Op == "get" {
			h.got(w, r.Code, fault, r.Body)
			continue
		}
		v := h.decided.Judge(w, h.time)
		switch {
		case i == blamed:
			v = blame
		case blamed >= 0:
			v = model.No(424, "failed_dependency")
		}
		h.answered(v, r.Code, fault, events)
		events = h.follows(w, v, events)
		if fault == nil {
			h.replied(w, v, r.Body)
		}
	}
	if len(events) > 0 {
		t.Fatalf("%d events for no reason", len(events))
	}
}

// blame returns the first operation of an atomic batch that is refused, and its verdict, or
// -1.
func (h *history) blame(wishes []model.Mutation) (int, model.Verdict) {
	would := h.decided.Clone()
	for i, w := range wishes {
		if w.Op == "get" {
			continue
		}
		v, err := would.Do(w, max(h.time, h.now))
		h.must(err)
		if v.Code >= 400 {
			return i, v
		}
	}
	return -1, model.Verdict{}
}

func (h *history) got(w model.Mutation, code int, fault *schema.Error, body []byte) {
	w.Op = "document.get"
	v := h.decided.Judge(w, h.time)
	h.answered(v, code, fault, nil)
	if fault == nil {
		h.replied(w, v, body)
	}
}

func (h *history) sweep(t *rapid.T) {
	limit := rapid.SampledFrom([]int{0, 1, 2, 1000, 1000}).Draw(t, "limit")
	more, err := h.machine.Expire(h.now, limit)
	h.must(err)
	events := h.called()
	if len(events) > limit || slices.ContainsFunc(events, func(e *schema.Event) bool { return !e.Type.HasDeadline() }) {
		t.Fatalf("a sweep of at most %d decided %v", limit, events)
	}
	if !slices.IsSortedFunc(events, func(a, b *schema.Event) int { return cmp.Compare(a.Type, b.Type) }) {
		t.Fatal("a sweep warns before it expires")
	}
	h.logged(events...)
	if more {
		return
	}
	h.eachSettled(func(name, id string, c *model.Collection, d model.Document) {
		if c.Deadline(d).Passed(h.time / 1000) {
			t.Fatalf("%s/%s is still there after the sweep", name, id)
		}
		if c.Warns(h.decided.Collections[name].Documents[id], h.time/1000) {
			t.Fatalf("%s/%s was not warned of", name, id)
		}
	})
}

// eachSettled visits the folded documents without pending events: the sweep has to
// know those.
func (h *history) eachSettled(visit func(name, id string, c *model.Collection, d model.Document)) {
	for name, c := range h.folded.Collections {
		for id, d := range c.Documents {
			if !slices.ContainsFunc(h.pending, func(e *schema.Event) bool {
				return string(e.Collection) == name && e.Type != schema.DocumentExpiring && (string(e.ID) == id || !e.Type.OnDocument())
			}) {
				visit(name, id, c, d)
			}
		}
	}
}

// end makes the machine forget everything but the log. It is rare, since the machine
// then also forgets its errors.
func (h *history) end(t *rapid.T) {
	switch rapid.IntRange(0, 9).Draw(t, "end") {
	case 0:
		h.abort(t)
	case 1:
		h.restart(t)
	case 2:
		h.crash(t)
	}
}

func (h *history) commit(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "take") > 0 {
		h.take()
	}
	if rapid.Bool().Draw(t, "all") {
		h.commitFirst(h.taken)
	} else {
		h.commitFirst(rapid.IntRange(0, h.taken).Draw(t, "first"))
	}
}

// abort appends the first of the taken events, or none, to the log, and loses the
// acknowledgement.
func (h *history) abort(t *rapid.T) {
	h.acknowledge(rapid.IntRange(0, h.taken).Draw(t, "first"))
	h.must(h.machine.Abort())
	h.must(h.machine.adopt(bare(h.log[h.store.Cursor().Seq:])))
	h.restarted()
}

func (h *history) restart(t *rapid.T) {
	h.acknowledge(rapid.IntRange(0, h.taken).Draw(t, "first"))
	h.must(h.store.Close())
	h.open()
}

func (h *history) crash(t *rapid.T) {
	h.acknowledge(rapid.IntRange(0, h.taken).Draw(t, "first"))
	crashed := h.fs.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced"),
		RNG:                 rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
	})
	h.must(h.store.Close())
	h.fs = crashed
	h.open()
}

// follow makes the follower fold some of the events that it lacks.
func (h *history) follow(t *rapid.T) {
	lacks := h.log[h.follower.Cursor().Seq:]
	h.must(h.follower.Fold(bare(lacks[:rapid.IntRange(0, len(lacks)).Draw(t, "first")])))
}

// check compares all reads of the machine with the model.
func (h *history) check(t *rapid.T) {
	h.t = t
	for _, name := range collectionNames {
		for _, id := range documentIDs {
			o, err := h.machine.get(h.now, schema.CollectionName(name), schema.DocumentID(id))
			h.must(err)
			h.called()
			h.got(model.Mutation{Collection: name, ID: id}, o.Code, o.Fault, o.Body)
		}
	}
	h.compare(h.store, h.folded)
	soonest, has := h.machine.NextDue()
	h.eachSettled(func(name, id string, c *model.Collection, d model.Document) {
		if due := c.Deadline(d); due.Rule != "" && (!has || soonest > due.At) {
			t.Fatalf("%s/%s is due at %d, the sweep says %d %t", name, id, due.At, soonest, has)
		}
		if soonest > h.time/1000 && c.Warns(h.decided.Collections[name].Documents[id], soonest-1) {
			t.Fatalf("%s/%s is to be warned of, the sweep says %d", name, id, soonest)
		}
	})
}

// compare compares all content of a store with the model.
func (h *history) compare(s *projections.Store, n *model.Model) {
	cursor := s.Cursor()
	if cursor.Seq != n.Seq || cursor.Time != n.Time || cursor.Mutations != n.Judged || cursor.Foreign != 0 {
		h.t.Fatalf("the cursor is %+v, should be at %d at %d, mutation %d", cursor, n.Seq, n.Time, n.Judged)
	}
	if n.Seq > 0 && !cursor.Check(h.log[n.Seq-1]) {
		h.t.Fatalf("the cursor %+v does not know event %d", cursor, n.Seq)
	}
	if got := len(s.Collections()); got != len(n.Collections) {
		h.t.Fatalf("%d collections, should be %d", got, len(n.Collections))
	}
	now := h.time / 1000
	for name, want := range n.Collections {
		c, ok := s.Collection(schema.CollectionName(name))
		if !ok {
			h.t.Fatalf("there is no %s", name)
		}
		if got := c.AppendReply(nil); !reflect.DeepEqual(model.Parse(got), n.Reply("collection.replace", name, "")) {
			h.t.Fatalf("%s is %s, should be %v", name, got, want)
		}
		counts, err := s.Count(c, now)
		h.must(err)
		should := countOf(want, now)
		if should.Oldest == want.TS && counts.Oldest == want.TS+1 {
			should.Oldest++ // since the whole second after a change of policy
		}
		if counts != should {
			h.t.Fatalf("%s has %+v, should have %+v", name, counts, should)
		}
		for _, id := range documentIDs {
			h.compareDocument(s, c, want, id)
		}
	}
}

// countOf counts the documents of a collection at a second.
func countOf(c *model.Collection, now int64) (n projections.Counts) {
	for _, d := range c.Documents {
		if d.Held {
			n.Held++
		}
		due := c.Deadline(d)
		if due.Passed(now) {
			since := max(due.At, c.TS) // a change of policy may have made it due
			if n.Overdue++; n.Overdue == 1 || since < n.Oldest {
				n.Oldest = since
			}
			continue
		}
		n.Documents++
		n.Bytes += int64(len(d.Body))
		if due.Rule != "" {
			n.Pending++
		}
	}
	return n
}

func (h *history) compareDocument(s *projections.Store, c *schema.Collection, want *model.Collection, id string) {
	r, ok, err := s.Document(c, schema.DocumentID(id))
	h.must(err)
	d, exists := want.Documents[id]
	if ok != exists || uint64(r.Version) != d.Version || r.TS != d.TS || string(r.Body) != d.Body {
		h.t.Fatalf("%s/%s is %+v, should be %+v", c.Name, id, r, d)
	}
	var warned []int64
	if in, second, waits := projections.QueueOf(c, r.Meta); ok && waits {
		_, _, err = s.Scan(in, projections.Entry{Second: second}, second, func(e projections.Entry) bool {
			if string(e.ID) == id {
				warned = e.Warned
			}
			return true
		})
		h.must(err)
		if !slices.Equal(warned, d.Warned) {
			h.t.Fatalf("%s/%s was warned of %v, should be of %v", c.Name, id, warned, d.Warned)
		}
	}
	due := want.Deadline(d)
	if got := r.Deadline(c); exists && (got.Rule.String() != due.Rule || got.At != due.At) {
		h.t.Fatalf("%s/%s is due at %+v, should be at %+v", c.Name, id, got, due)
	}
}

// finish advances the clock until nothing is due any more, and compares the rest with
// a store folded from the log alone.
func (h *history) finish(t *rapid.T) {
	h.now = max(h.now, h.time)
	h.expireAll(t)
	for _, c := range h.decided.Collections {
		for id, d := range c.Documents {
			if c.Deadline(d).Passed(h.time/1000) || c.Warns(d, h.time/1000) {
				t.Fatalf("%s is due and did not expire, or was not warned of", id)
			}
		}
	}
	h.advance(t, math.MaxInt64)
	for _, c := range h.decided.Collections {
		for id, d := range c.Documents {
			if due := c.Deadline(d); due.Rule != "" {
				t.Fatalf("%s is due at %d, and nobody knows", id, due.At)
			}
		}
	}
	h.check(t)
	h.must(h.follower.Fold(bare(h.log[h.follower.Cursor().Seq:])))
	h.compare(h.follower, h.folded)
	if live, followed := h.store.Cursor(), h.follower.Cursor(); live != followed {
		t.Fatalf("the cursor is %+v, by the log %+v", live, followed)
	}
	for _, s := range []*projections.Store{h.store, h.follower} {
		for _, name := range collectionNames {
			for _, id := range documentIDs {
				h.livesOf(s, schema.CollectionName(name), schema.DocumentID(id))
			}
		}
	}
}

// livesOf checks that Previous leads from the ends of an id's lives to all its events.
func (h *history) livesOf(s *projections.Store, name schema.CollectionName, id schema.DocumentID) {
	ends, err := s.Lives(name, id, 1000)
	h.must(err)
	found := map[uint64]bool{}
	for i, seq := range ends {
		if i > 0 && seq >= ends[i-1] {
			h.t.Fatalf("the lives of %s/%s ended at %v, which should be newest first", name, id, ends)
		}
		for ; seq != 0; seq = uint64(h.log[seq-1].Previous) {
			found[seq] = true
		}
	}
	for _, e := range h.log {
		if of := e.Type.OnDocument() && e.Collection == name && e.ID == id; of != found[e.Seq] {
			h.t.Fatalf("the history of %s/%s, which ends at %v, has event %d: %t", name, id, ends, e.Seq, !of)
		}
	}
}

// advance advances the clock to a time, through everything due until then. What is due
// now must have expired.
func (h *history) advance(t *rapid.T, to int64) {
	for range 1000 {
		second, ok := h.machine.NextDue()
		if !ok || second > to/1000 {
			break
		}
		h.now = max(h.now, second*1000)
		for _, e := range h.expireAll(t) {
			at := e.Deadline.At
			if e.Type == schema.DocumentExpiring {
				at -= int64(h.decided.Collections[string(e.Collection)].Properties["warnBefore"].(float64))
			}
			if at != h.now/1000 {
				t.Fatalf("%s was due at %d and came at %d", e.Type, at, h.now/1000)
			}
		}
	}
	if to < math.MaxInt64 {
		h.now = to
	}
}

// expireAll sweeps and commits until nothing is due, and returns the events.
func (h *history) expireAll(t *rapid.T) (expired []*schema.Event) {
	for more, rounds := true, 0; more; rounds++ {
		if rounds == 1000 {
			t.Fatal("sweeps do not end")
		}
		h.take()
		h.commitFirst(len(h.pending))
		var err error
		more, err = h.machine.Expire(h.now, 2)
		h.must(err)
		events := h.called()
		h.logged(events...)
		expired = append(expired, events...)
		more = more || len(events) > 0
	}
	return expired
}

// Random mutations.

func (h *history) wish(t *rapid.T) model.Mutation {
	collection := rapid.SampledFrom(collectionNames).Draw(t, "collection")
	var w model.Mutation
	if h.decided.Collections[collection] != nil && rapid.IntRange(0, 7).Draw(t, "document") > 0 {
		w = h.documentWish(t, collection)
	} else {
		w = h.collectionWish(t, collection)
	}
	w.MsgID = rapid.SampledFrom([]string{"", "", "", "", "m1", "m2"}).Draw(t, "msgID")
	if h.sent.MsgID != "" && rapid.IntRange(0, 9).Draw(t, "repeat") == 0 {
		w = h.sent
	}
	if w.MsgID != "" {
		h.sent, h.sentAt = w, max(h.time, h.now)
	}
	w.Cause = 0
	if rapid.IntRange(0, 3).Draw(t, "recorded") == 0 {
		h.causes++
		w.Cause = h.causes
	}
	t.Logf("%+v at %d", w, h.now)
	return w
}

func (h *history) collectionWish(t *rapid.T, collection string) model.Mutation {
	w := model.Mutation{Collection: collection, Op: "collection.create"}
	var version uint64
	if c := h.decided.Collections[collection]; c != nil {
		version = c.Version
	}
	if version != 0 || rapid.IntRange(0, 9).Draw(t, "absent") == 0 {
		w.Op = rapid.SampledFrom([]string{"collection.replace", "collection.replace", "collection.replace", "collection.delete", "collection.create"}).Draw(t, "op")
	}
	w.IfMatch = ifMatch(t, version)
	if w.Op == "collection.delete" || rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
		return w
	}
	body := map[string]any{}
	if ttl := rapid.SampledFrom([]any{nil, -1, 1, 2, 3, 5, 10, 5.0, 0, "5"}).Draw(t, "defaultTtl"); ttl != nil || rapid.Bool().Draw(t, "null") {
		body["defaultTtl"] = ttl
	}
	if rapid.Bool().Draw(t, "no images") {
		body["previousImages"] = false
	}
	if before := rapid.SampledFrom([]any{nil, nil, 1, 2, 4, 30, 3.0, 0, -1, "5"}).Draw(t, "warnBefore"); before != nil {
		body["warnBefore"] = before
	}
	if metadata := rapid.SampledFrom([]map[string]string{nil, nil, {}, {"owner": "shop"}, {"owner": "", "b": "<"}}).Draw(t, "metadata"); metadata != nil {
		body["metadata"] = metadata
	}
	if mode := rapid.SampledFrom([]string{"", "", "", "lazy", "none"}).Draw(t, "indexingMode"); mode != "" {
		body["indexingPolicy"] = map[string]any{"indexingMode": mode}
	}
	w.Body = jsonOf(body)
	return w
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// ifMatch returns mostly "", else a right or wrong version.
func ifMatch(t *rapid.T, version uint64) string {
	right := fmt.Sprint(version)
	return rapid.SampledFrom([]string{"", "", "", "", right, right, "1", "*", "0" + right}).Draw(t, "ifMatch")
}

// givenEnd returns the headers of a given end, mostly none.
func (h *history) givenEnd(t *rapid.T) (expireAt, keep string) {
	switch rapid.IntRange(0, 19).Draw(t, "end") {
	case 0, 1:
		away := rapid.SampledFrom([]int64{-1, 0, 1, 2, 5, 12, math.MaxInt32, math.MaxInt32 + 1}).Draw(t, "away")
		return fmt.Sprint(max(h.time, h.now)/1000 + away), ""
	case 2, 3, 4:
		return "", "true"
	case 5:
		return rapid.SampledFrom([]string{"soon", "-5", "1.5", "99999999999999999999", ""}).Draw(t, "bad"), rapid.SampledFrom([]string{"", "false", "true"}).Draw(t, "keep")
	}
	return "", ""
}

func (h *history) documentWish(t *rapid.T, collection string) model.Mutation {
	w := model.Mutation{Collection: collection, ID: rapid.SampledFrom(documentIDs).Draw(t, "id")}
	w.Op = rapid.SampledFrom([]string{"document.create", "document.create", "document.replace", "document.upsert",
		"document.upsert", "document.patch", "document.patch", "document.delete", "document.touch", "document.touch", "document.restore", "document.restore", "document.hold", "document.release", "document.release"}).Draw(t, "op")
	var version uint64
	if c := h.decided.Collections[collection]; c != nil {
		version = c.Documents[w.ID].Version
	}
	w.IfMatch = ifMatch(t, version)
	if w.Op == "document.hold" {
		w.Body = rapid.SampledFrom([]string{"", "{}", `{"reason":"x"}`, `{"reason":"y"}`, `{"reason":5}`, `{"why":"x"}`, "["}).Draw(t, "reason")
		return w
	}
	w.ExpireAt, w.Keep = h.givenEnd(t)
	if w.Op == "document.touch" && rapid.Bool().Draw(t, "by age") {
		w.Body = rapid.SampledFrom([]string{`{"minAge":1}`, `{"minAge":2}`, `{"minAge":4.0,"content":true}`, `{"content":true}`, `{"content":false,"minAge":9}`,
			`{"minAge":0}`, `{"minAge":null}`, `{"content":1}`, `{"age":1}`}).Draw(t, "age")
		return w
	}
	if w.Op == "document.delete" || (w.Op == "document.touch" || w.Op == "document.release") && rapid.IntRange(0, 9).Draw(t, "content") > 0 {
		return w
	}
	if w.Op == "document.restore" {
		versions := []string{"", "", "", "1", "x", "01"}
		for _, e := range slices.Concat(h.log, h.pending) {
			if string(e.Collection) == collection && string(e.ID) == w.ID {
				versions = append(versions, fmt.Sprint(e.Seq))
			}
		}
		if version := rapid.SampledFrom(versions).Draw(t, "version"); version != "" {
			w.Body = jsonOf(map[string]any{"version": version})
		}
		return w
	}
	if rapid.IntRange(0, 29).Draw(t, "malformed") == 0 {
		w.Body = rapid.SampledFrom([]string{"", "[1]", `"a"`, "null", `{"n":`}).Draw(t, "body")
		return w
	}
	body := map[string]any{}
	if given := w.ExpireAt != "" || w.Keep != ""; given && rapid.IntRange(0, 9).Draw(t, "without ttl") > 0 {
	} else if ttl := rapid.SampledFrom([]any{"absent", "absent", nil, -1, 1, 2, 3, 5, 12, 3.0, 0, -2, 1.5, "5", true, map[string]any{"in": 5}}).Draw(t, "ttl"); ttl != "absent" {
		body["ttl"] = ttl
	}
	for _, name := range []string{"n", "o"} {
		if value := rapid.SampledFrom([]any{"absent", nil, 1, "x", map[string]any{"p": 1}, map[string]any{"p": nil, "q": []int{1}}}).Draw(t, name); value != "absent" {
			body[name] = value
		}
	}
	switch rapid.IntRange(0, 19).Draw(t, "more") {
	case 0:
		body["id"] = "other"
	case 1, 2:
		body["id"] = w.ID
	case 3:
		body["_ts"], body["_etag"] = 7, "7"
	}
	w.Body = jsonOf(body)
	return w
}
