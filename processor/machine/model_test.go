package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestHistories runs random histories through the state machine and compares
// each step with the naive model: replies, events, reads and due times. Few names
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

	decided *naive          // pending events included
	pending []*schema.Event // decided and not folded,
	taken   int             // of which these were handed out
	folded  *naive
	log     []*schema.Event
	causes  uint64
	sent    intent // the last with a Nats-Msg-Id
}

func newHistory(t *rapid.T) *history {
	h := &history{t: t, fs: vfs.NewCrashableMem(), now: 1000_000, decided: newNaive(), folded: newNaive()}
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
	h.must(h.machine.Adopt(bare(h.log[h.store.Cursor().Seq:])))
	h.restarted()
}

// restarted resets the model to a machine that knows only the log.
func (h *history) restarted() {
	h.pending, h.taken = nil, 0
	var err error
	h.decided, err = naiveOf(h.log)
	h.must(err)
	h.folded, err = naiveOf(h.log)
	h.must(err)
	h.time = h.folded.time
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
	if seq := h.folded.seq + uint64(len(h.pending)); h.machine.Seq() != seq || h.machine.Pending() != len(h.pending) {
		h.t.Fatalf("the machine is at %d with %d pending, and should be at %d with %d", h.machine.Seq(), h.machine.Pending(), seq, len(h.pending))
	}
	return h.pending[h.decided.seq-h.folded.seq:]
}

// logged applies checked events to the decided state.
func (h *history) logged(events ...*schema.Event) {
	for _, e := range events {
		h.t.Logf("    %d at %d %s %s/%s", e.Seq, e.Time, e.Type, e.Collection, e.ID)
		if err := h.decided.apply(e); err != nil {
			h.t.Fatal(err)
		}
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
		h.must(h.folded.apply(e))
	}
	h.pending, h.taken = h.pending[n:], h.taken-n
}

func (h *history) commitFirst(n int) {
	h.acknowledge(n)
	h.must(h.machine.Commit(h.folded.seq))
}

// The steps of a history.

func (h *history) clock(t *rapid.T) {
	h.now += rapid.OneOf(
		rapid.Map(rapid.Int64Range(0, 3), func(s int64) int64 { return s * 1000 }),
		rapid.Map(rapid.Int64Range(0, 20), func(s int64) int64 { return s * 1000 }),
		rapid.Int64Range(0, 2500),
		rapid.SampledFrom([]int64{1000 - h.now%1000, 999 - h.now%1000, 119_999, 120_000, -3000}),
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

func (w *intent) mutation() *schema.Mutation {
	mu := schema.NewNamedMutation(w.op, w.collection, w.id, []byte(w.body))
	mu.IfMatch, mu.MsgID, mu.Recorded, mu.Cause = w.ifMatch, w.msgID, w.recorded, w.cause
	return mu
}

func (h *history) decide(w *intent) {
	mu := w.mutation()
	for range 100 {
		v := h.decided.judge(w, max(h.time, h.now))
		o, err := h.machine.Decide(h.now, mu)
		h.must(err)
		events := h.called()
		if o.Recall && len(events) == 0 {
			continue
		}
		if !o.Again {
			h.came(w, v, o, events)
			return
		}
		// Until it is decided, only due entries of the collection may make events.
		for _, e := range events {
			if w.onDocument() || !e.Type.HasDeadline() || string(e.Collection) != w.collection {
				h.t.Fatalf("%s, to be decided again, made %s", w.op, e.Type)
			}
		}
		h.logged(events...)
		h.take()
		h.commitFirst(len(h.pending))
	}
	h.t.Fatal("decided again and again")
}

// came compares the outcome and the events of a mutation with the verdict.
func (h *history) came(w *intent, v verdict, o Outcome, events []*schema.Event) {
	if o.Seq != h.machine.Seq() {
		h.t.Fatalf("the answer is of %d, decided is up to %d", o.Seq, h.machine.Seq())
	}
	if o.Repeat != v.repeat {
		h.t.Fatalf("repeats event %d, should %d", o.Repeat, v.repeat)
	}
	h.answered(v, o.Code, o.Fault, events)
	main := h.follows(w, v, events)
	if v.code >= 400 && w.recorded {
		main = h.expect(main, "MutationRejected")
		var body struct {
			Error    string
			Mutation struct{ Op, Collection, ID string }
		}
		h.must(json.Unmarshal(main[0].Body, &body))
		if m := body.Mutation; body.Error != v.name || m.Op != w.op || m.Collection != w.collection || m.ID != w.id {
			h.t.Fatalf("the rejection is %s", main[0].Body)
		}
		h.logged(main...)
		main = nil
	}
	if len(main) > 0 {
		h.t.Fatalf("%s follows, for no reason", main[0].Type)
	}
	h.replied(v, o.Body)
}

// follows checks that the events, after expiries, are those of the verdict, and
// returns the rest.
func (h *history) follows(w *intent, v verdict, events []*schema.Event) []*schema.Event {
	for len(events) > 0 && string(events[0].Collection) == w.collection && (!w.onDocument() && events[0].Type.HasDeadline() ||
		events[0].Type == schema.DocumentExpired && string(events[0].ID) == w.id) {
		h.logged(events[0])
		events = events[1:]
	}
	if v.event == "" {
		return events
	}
	events = h.expect(events, v.event)
	e := events[0]
	if e.Cause != w.cause || v.repeat == 0 && (e.MsgID != w.msgID || w.msgID != "" && e.MsgOp.String() != w.op || string(e.Collection) != w.collection || string(e.ID) != w.id) {
		h.t.Fatalf("%+v follows from %+v", e, w)
	}
	if v.content != nil && !v.touched && !v.noted && !reflect.DeepEqual(parsed(e.Body), v.content) {
		h.t.Fatalf("the content is %s, should be %v", e.Body, v.content)
	}
	h.logged(e)
	return events[1:]
}

func (h *history) expect(events []*schema.Event, name string) []*schema.Event {
	if len(events) == 0 || events[0].Type.String() != name {
		h.t.Fatalf("%v follows, should be %s", events, name)
	}
	return events
}

func (h *history) answered(v verdict, code int, fault *schema.Error, events []*schema.Event) {
	name := ""
	if fault != nil {
		name = fault.Name
	}
	if code != v.code || name != v.name {
		h.t.Fatalf("answered %d %s, should be %d %s; followed by %v", code, name, v.code, v.name, events)
	}
}

// replied compares the body of a reply with the verdict; its version is the last decided.
func (h *history) replied(v verdict, body []byte) {
	var want map[string]any
	if v.content != nil {
		want = reply(v.content, h.time/1000, h.decided.seq)
		if v.noted {
			want = v.content
		}
		if strings.HasPrefix(v.event, "Collection") {
			want["id"] = parsed(body)["id"]
		}
	}
	if got := parsed(body); !reflect.DeepEqual(got, want) {
		h.t.Fatalf("replied %s, should be %v", body, want)
	}
}

func (h *history) batch(t *rapid.T) {
	collection := rapid.SampledFrom(collectionNames).Draw(t, "collection")
	atomic := rapid.Bool().Draw(t, "atomic")
	var wishes []*intent
	var operations []map[string]any
	for range rapid.IntRange(1, 6).Draw(t, "operations") {
		w := &intent{op: "get", collection: collection, id: rapid.SampledFrom(documentIDs).Draw(t, "id")}
		if rapid.IntRange(0, 3).Draw(t, "get") > 0 {
			w = h.documentWish(t, collection)
		}
		wishes = append(wishes, w)
		operation := map[string]any{"op": strings.TrimPrefix(w.op, "document."), "id": w.id, "ifMatch": w.ifMatch}
		if json.Valid([]byte(w.body)) {
			operation["body"] = json.RawMessage(w.body)
		} else {
			w.body = ""
		}
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
	if atomic {
		blamed = h.blame(wishes)
	}
	run := NewBatchRun(b, 1<<20)
	work := rapid.SampledFrom([]int{0, 100, math.MaxInt}).Draw(t, "work") // in one piece
	o, err := h.machine.DecideBatch(h.now, run, work)
	for ; err == nil && (o.More || o.Recall); work = max(work, 1) {
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
		before := min(int(run.First-h.decided.seq-1), len(events))
		for _, e := range events[:before] {
			if e.Type != schema.DocumentExpired || !slices.ContainsFunc(wishes, func(w *intent) bool { return w.id == string(e.ID) }) {
				t.Fatalf("%s of %s comes before the atomic batch", e.Type, e.ID)
			}
		}
		h.logged(events[:before]...)
		events = events[before:]
		if blamed >= 0 && len(events) > 0 {
			t.Fatalf("%d events of a failed atomic batch", len(events))
		}
		for _, e := range events {
			if e.Type == schema.DocumentExpired && !slices.ContainsFunc(wishes, func(w *intent) bool { return w.op == "document.release" && w.id == string(e.ID) }) {
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
			fault = &schema.Error{Name: fmt.Sprint(parsed(r.Body)["error"])}
		}
		if w.op == "get" {
			h.got(w, r.Code, fault, r.Body)
			continue
		}
		v := h.decided.judge(w, h.time)
		if blamed >= 0 && i != blamed {
			v = no(424, "failed_dependency")
		} else if i == blamed {
			v = h.blamedVerdict(wishes[:i+1])
		}
		h.answered(v, r.Code, fault, events)
		events = h.follows(w, v, events)
		if fault == nil {
			h.replied(v, r.Body)
		}
	}
	if len(events) > 0 {
		t.Fatalf("%d events for no reason", len(events))
	}
}

// blame returns the first operation of an atomic batch that is refused, or -1.
func (h *history) blame(wishes []*intent) int {
	for i, w := range wishes {
		if w.op != "get" && h.blamedVerdict(wishes[:i+1]).code >= 400 {
			return i
		}
	}
	return -1
}

// blamedVerdict returns the verdict on the last mutation if those before it are applied.
func (h *history) blamedVerdict(wishes []*intent) verdict {
	would := &naive{collections: maps.Clone(h.decided.collections), last: maps.Clone(h.decided.last), versions: h.decided.versions}
	last := wishes[len(wishes)-1]
	if c := would.collections[last.collection]; c != nil {
		copied := *c
		copied.documents = maps.Clone(c.documents)
		would.collections[last.collection] = &copied
	}
	time := max(h.time, h.now)
	for i, w := range wishes[:len(wishes)-1] {
		if w.op == "get" {
			continue
		}
		switch v := would.judge(w, time); {
		case v.code >= 400:
			return v
		case v.noted:
			d := would.collections[w.collection].documents[w.id]
			d.held = v.event == "DocumentHeld"
			would.collections[w.collection].documents[w.id] = d
		case v.touched:
			d := would.collections[w.collection].documents[w.id]
			d.version, d.ts = 1<<60+uint64(i), time/1000
			would.kept(w.collection, w.id, d.version, d.content)
			would.collections[w.collection].documents[w.id] = d
		case v.content == nil:
			would.end(w.collection, w.id, would.collections[w.collection].documents[w.id].version)
			delete(would.collections[w.collection].documents, w.id)
		default: // at a version that no client can have named
			would.kept(w.collection, w.id, 1<<60+uint64(i), v.content)
			would.collections[w.collection].documents[w.id] = naiveDocument{version: 1<<60 + uint64(i), ts: time / 1000, content: v.content, held: would.collections[w.collection].documents[w.id].held}
		}
	}
	return would.judge(last, time)
}

func (h *history) got(w *intent, code int, fault *schema.Error, body []byte) {
	want := h.decided.read(w.collection, w.id, h.time/1000)
	v := verdict{code: 200}
	switch {
	case h.decided.collections[w.collection] == nil:
		v = no(404, "collection_not_found")
	case want == nil:
		v = no(404, "document_not_found")
	}
	h.answered(v, code, fault, nil)
	if got := parsed(body); fault == nil && !reflect.DeepEqual(got, want) {
		h.t.Fatalf("got %s, should be %v", body, want)
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
	h.eachSettled(func(name, id string, c *naiveCollection, d naiveDocument) {
		if c.due(d, h.time/1000) {
			t.Fatalf("%s/%s is still there after the sweep", name, id)
		}
		if c.toWarn(h.decided.collections[name].documents[id], h.time/1000) {
			t.Fatalf("%s/%s was not warned of", name, id)
		}
	})
}

// eachSettled visits the folded documents without pending events: the sweep has to
// know those.
func (h *history) eachSettled(visit func(name, id string, c *naiveCollection, d naiveDocument)) {
	for name, c := range h.folded.collections {
		decided := h.decided.collections[name]
		if decided == nil || decided.version != c.version {
			continue
		}
		for id, d := range c.documents {
			if now, ok := decided.documents[id]; ok && now.version == d.version && now.changed == d.changed {
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
	h.must(h.machine.Adopt(bare(h.log[h.store.Cursor().Seq:])))
	h.restarted()
}

func (h *history) restart(t *rapid.T) {
	h.acknowledge(rapid.IntRange(0, h.taken).Draw(t, "first"))
	h.must(h.store.Close())
	h.open()
}

func (h *history) crash(t *rapid.T) {
	h.acknowledge(rapid.IntRange(0, h.taken).Draw(t, "first"))
	left := h.fs.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced"),
		RNG:                 rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
	})
	h.must(h.store.Close())
	h.fs = left
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
			o, err := h.machine.Read(h.now, schema.CollectionName(name), schema.DocumentID(id))
			h.must(err)
			h.called()
			h.got(&intent{collection: name, id: id}, o.Code, o.Fault, o.Body)
		}
	}
	h.compare(h.store, h.folded)
	soonest, has := h.machine.NextDue()
	h.eachSettled(func(name, id string, c *naiveCollection, d naiveDocument) {
		if at, _, _, ok := c.deadline(d); ok && (!has || soonest > at) {
			t.Fatalf("%s/%s is due at %d, the sweep says %d %t", name, id, at, soonest, has)
		}
		if soonest > h.time/1000 && c.toWarn(h.decided.collections[name].documents[id], soonest-1) {
			t.Fatalf("%s/%s is to be warned of, the sweep says %d", name, id, soonest)
		}
	})
}

// compare compares all content of a store with the model.
func (h *history) compare(s *projections.Store, n *naive) {
	cursor := s.Cursor()
	if cursor.Seq != n.seq || cursor.Time != n.time || cursor.Mutations != n.mutations || cursor.Foreign != 0 {
		h.t.Fatalf("the cursor is %+v, should be at %d at %d, mutation %d", cursor, n.seq, n.time, n.mutations)
	}
	if n.seq > 0 && !cursor.Check(h.log[n.seq-1]) {
		h.t.Fatalf("the cursor %+v does not know event %d", cursor, n.seq)
	}
	if got := len(s.Collections()); got != len(n.collections) {
		h.t.Fatalf("%d collections, should be %d", got, len(n.collections))
	}
	now := h.time / 1000
	for name, want := range n.collections {
		c, ok := s.Collection(schema.CollectionName(name))
		if !ok {
			h.t.Fatalf("there is no %s", name)
		}
		properties := reply(want.properties, want.ts, want.version)
		properties["id"] = name
		if got := c.AppendReply(nil); !reflect.DeepEqual(parsed(got), properties) {
			h.t.Fatalf("%s is %s, should be %v", name, got, properties)
		}
		counts, err := s.Count(c, now)
		h.must(err)
		var should projections.Counts
		should.Documents, should.Bytes, should.Pending, should.Overdue, should.Oldest = want.counts(now)
		for _, d := range want.documents {
			if d.held {
				should.Held++
			}
		}
		if should.Oldest == want.ts && counts.Oldest == want.ts+1 {
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

func (h *history) compareDocument(s *projections.Store, c *schema.Collection, want *naiveCollection, id string) {
	r, ok, err := s.Document(c, schema.DocumentID(id))
	h.must(err)
	d, exists := want.documents[id]
	if ok != exists || uint64(r.Version) != d.version || r.TS != d.ts || !reflect.DeepEqual(parsed(r.Body), d.content) {
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
		if !slices.Equal(warned, d.warned) {
			h.t.Fatalf("%s/%s was warned of %v, should be of %v", c.Name, id, warned, d.warned)
		}
	}
	at, _, _, expires := want.deadline(d)
	if deadline := r.Deadline(c); exists && (deadline.Rule != schema.NoRule) != expires || exists && expires && deadline.At != at {
		h.t.Fatalf("%s/%s is due at %+v, should be at %d %t", c.Name, id, deadline, at, expires)
	}
}

// finish advances the clock until nothing is due any more, and compares the rest with
// a store folded from the log alone.
func (h *history) finish(t *rapid.T) {
	h.now = max(h.now, h.time)
	h.expireAll(t)
	for _, c := range h.decided.collections {
		for id, d := range c.documents {
			if c.due(d, h.time/1000) || c.toWarn(d, h.time/1000) {
				t.Fatalf("%s is due and did not expire, or was not warned of", id)
			}
		}
	}
	h.advance(t, math.MaxInt64)
	for _, c := range h.decided.collections {
		for id, d := range c.documents {
			if at, _, _, ok := c.deadline(d); ok {
				t.Fatalf("%s is due at %d, and nobody knows", id, at)
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
				got, err := s.Lives(schema.CollectionName(name), schema.DocumentID(id), 1000)
				h.must(err)
				if want := h.folded.lives(name, id); !slices.Equal(got, want) {
					t.Fatalf("the lives of %s/%s ended at %v, should be %v", name, id, got, want)
				}
			}
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
				at -= int64(h.decided.collections[string(e.Collection)].properties["warnBefore"].(float64))
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
	for more := true; more; {
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

func (h *history) wish(t *rapid.T) *intent {
	collection := rapid.SampledFrom(collectionNames).Draw(t, "collection")
	var w *intent
	if h.decided.collections[collection] != nil && rapid.IntRange(0, 7).Draw(t, "document") > 0 {
		w = h.documentWish(t, collection)
	} else {
		w = h.collectionWish(t, collection)
	}
	w.msgID = rapid.SampledFrom([]string{"", "", "", "", "m1", "m2"}).Draw(t, "msgID")
	if h.sent.msgID != "" && rapid.IntRange(0, 9).Draw(t, "repeat") == 0 {
		*w = h.sent
	}
	if w.msgID != "" {
		h.sent = *w
	}
	w.recorded, w.cause = false, 0
	if rapid.IntRange(0, 3).Draw(t, "recorded") == 0 {
		h.causes++
		w.recorded, w.cause = true, h.causes
	}
	t.Logf("%+v at %d", *w, h.now)
	return w
}

func (h *history) collectionWish(t *rapid.T, collection string) *intent {
	w := &intent{collection: collection, op: "collection.create"}
	c := h.decided.collections[collection]
	if c != nil || rapid.IntRange(0, 9).Draw(t, "absent") == 0 {
		w.op = rapid.SampledFrom([]string{"collection.replace", "collection.replace", "collection.replace", "collection.delete", "collection.create"}).Draw(t, "op")
	}
	var version uint64
	if c != nil {
		version = c.version
	}
	w.ifMatch = ifMatch(t, version)
	if w.op == "collection.delete" || rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
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
	if mode := rapid.SampledFrom([]string{"", "", "", "lazy", "none"}).Draw(t, "indexingMode"); mode != "" {
		body["indexingPolicy"] = map[string]any{"indexingMode": mode}
	}
	w.body = jsonOf(body)
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

func (h *history) documentWish(t *rapid.T, collection string) *intent {
	w := &intent{collection: collection, id: rapid.SampledFrom(documentIDs).Draw(t, "id")}
	w.op = rapid.SampledFrom([]string{"document.create", "document.create", "document.replace", "document.upsert",
		"document.upsert", "document.patch", "document.patch", "document.delete", "document.touch", "document.touch", "document.restore", "document.restore", "document.hold", "document.release", "document.release"}).Draw(t, "op")
	var version uint64
	if c := h.decided.collections[collection]; c != nil {
		version = c.documents[w.id].version
	}
	w.ifMatch = ifMatch(t, version)
	if w.op == "document.hold" {
		w.body = rapid.SampledFrom([]string{"", "{}", `{"reason":"x"}`, `{"reason":"y"}`, `{"reason":5}`, `{"why":"x"}`, "["}).Draw(t, "reason")
		return w
	}
	if w.op == "document.delete" || (w.op == "document.touch" || w.op == "document.release") && rapid.IntRange(0, 9).Draw(t, "content") > 0 {
		return w
	}
	if w.op == "document.restore" {
		versions := []string{"", "", "", "1", "x", "01"}
		for version := range h.decided.versions[collection+"/"+w.id] {
			versions = append(versions, fmt.Sprint(version))
		}
		slices.Sort(versions)
		if version := rapid.SampledFrom(versions).Draw(t, "version"); version != "" {
			w.body = jsonOf(map[string]any{"version": version})
		}
		return w
	}
	if rapid.IntRange(0, 29).Draw(t, "malformed") == 0 {
		w.body = rapid.SampledFrom([]string{"", "[1]", `"a"`, "null", `{"n":`}).Draw(t, "body")
		return w
	}
	body := map[string]any{}
	if ttl := rapid.SampledFrom([]any{"absent", "absent", nil, -1, 1, 2, 3, 5, 12, 3.0, 0, -2, 1.5, "5", true, map[string]any{"in": 5}}).Draw(t, "ttl"); ttl != "absent" {
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
		body["id"] = w.id
	case 3:
		body["_ts"], body["_etag"] = 7, "7"
	}
	w.body = jsonOf(body)
	return w
}
