package machine

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestScenarios runs the scenarios in testdata/scenarios against the state
// machine, with a clock that starts at second 1000 and moves only by "advance".
// Events are appended and folded after every command, unless on hold.
//
//	collection create|replace|delete orders [defaultTtl=10] [indexingMode=none] [previousImages=false] [warnBefore=3] [metadata={"a":"x"}]
//	collection get orders
//	create|replace|upsert|patch|delete|touch|restore|keep|release orders/a [{"json":"without-spaces"}] [if-match=7] [msg-id=m] [expire-at=1010] [keep-deadline=true]
//	                               (keep is document.hold)
//	mutation create|… orders/a …   the same from the mutations stream, without a reply
//	get orders/a
//	batch orders [atomic]          an operation per line, as above without the collection
//	advance 30s [unswept]          moves the clock, and sweeps on the way unless unswept
//	expire [limit=1]               sweeps what is due now
//	log                            prints the events since the last log
//	status orders                  prints the counts, as folded
//	lives orders/a                 prints the last event of each life
//	hold, commit [upto=5]          events after hold stay pending until commit
//	abort                          pending events never reached the log
//	restart                        closes and reopens the projection
//	rebuild                        loses the projection and folds it from the log
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &scenario{t: t, fs: vfs.NewMem(), now: 1000_000}
		s.open()
		defer func() { s.check(s.store.Close()) }()
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	t       *testing.T
	fs      vfs.FS
	store   *projections.Store
	machine *Machine

	now    int64 // ms
	hold   bool
	log    []*schema.Event
	shown  int    // number of events of log that were shown
	causes uint64 // mutations so far
}

func (s *scenario) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) open() {
	var err error
	s.store, err = projections.Open("projection", projections.Options{FS: s.fs, CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	s.check(err)
	s.machine, err = NewMachine(s.store)
	s.check(err)
	s.machine.History = AtHand{testHistory{s.store, &s.log}}
}

// testHistory is a Log in memory.
type testHistory struct {
	store *projections.Store
	log   *[]*schema.Event
}

func (h testHistory) Last(name schema.CollectionName, id schema.DocumentID) (uint64, error) {
	return h.store.LastOf(name, id)
}

func (h testHistory) Event(seq uint64) (*schema.Event, error) {
	if seq > uint64(len(*h.log)) {
		return nil, nil
	}
	return (*h.log)[seq-1], nil
}

// commit appends the pending events up to sequence upto to the log and folds them.
func (s *scenario) commit(upto uint64) {
	for _, fact := range s.machine.pending {
		if fact.Seq <= upto {
			s.log = append(s.log, fact.Event)
		}
	}
	s.machine.Take()
	s.check(s.machine.Commit(upto))
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	out := s.command(d, d.Cmd, d.CmdArgs)
	if !s.hold {
		s.commit(s.machine.Seq())
	}
	return strings.NewReplacer(usualIndexing, "", usualImages, "").Replace(out)
}

// Properties of most collections, which run leaves out.
const (
	usualIndexing = `,"indexingPolicy":{"indexingMode":"consistent","includedPaths":[]}`
	usualImages   = `,"previousImages":true`
)

func (s *scenario) command(d *datadriven.TestData, command string, args []datadriven.CmdArg) string {
	switch command {
	case "collection":
		if args[0].Key == "get" {
			return s.getCollection(args[1].Key)
		}
		return s.decide(newMutation("collection."+args[0].Key, args[1].Key, "", args[2:]))
	case "create", "replace", "upsert", "patch", "delete", "touch", "restore", "keep", "release":
		command = strings.Replace(command, "keep", "hold", 1) // hold is about the log
		collection, id, _ := strings.Cut(args[0].Key, "/")
		return s.decide(newMutation("document."+command, collection, id, args[1:]))
	case "mutation":
		name := "document." + strings.Replace(args[0].Key, "keep", "hold", 1)
		if args[0].Key == "collection" {
			args = args[1:]
			name = "collection." + args[0].Key
		}
		collection, id, _ := strings.Cut(args[1].Key, "/")
		mu := newMutation(name, collection, id, args[2:])
		s.causes++
		mu.Recorded, mu.Cause = true, s.causes
		return s.decide(mu)
	case "get":
		collection, id, _ := strings.Cut(args[0].Key, "/")
		o, err := s.machine.get(s.now, schema.CollectionName(collection), schema.DocumentID(id))
		s.check(err)
		return shown(o)
	case "batch":
		return s.batch(args[0].Key, d.HasArg("atomic"), d.Input)
	case "advance":
		step, err := time.ParseDuration(args[0].Key)
		s.check(err)
		s.advance(s.now+step.Milliseconds(), d.HasArg("unswept"))
		return fmt.Sprintf("it is %s", seconds(s.now))
	case "expire":
		limit := 1000
		d.MaybeScanArgs(s.t, "limit", &limit)
		more, err := s.machine.Expire(s.now, limit)
		s.check(err)
		return fmt.Sprintf("more: %t", more)
	case "log":
		return s.news()
	case "status":
		n, err := s.store.Count(s.folded(args[0].Key), s.now/1000)
		s.check(err)
		return fmt.Sprintf("documents=%d bytes=%d pending=%d overdue=%d", n.Documents, n.Bytes, n.Pending, n.Overdue)
	case "lives":
		collection, id, _ := strings.Cut(args[0].Key, "/")
		ends, err := s.store.Lives(schema.CollectionName(collection), schema.DocumentID(id), 1000)
		s.check(err)
		return fmt.Sprint(ends)
	case "hold":
		s.hold = true
		return fmt.Sprintf("the log ends at %d", s.store.Cursor().Seq)
	case "commit":
		if d.HasArg("upto") {
			var upto uint64
			d.ScanArgs(s.t, "upto", &upto)
			s.commit(upto)
		} else {
			s.commit(s.machine.Seq())
			s.hold = false
		}
		return fmt.Sprintf("the log ends at %d, %d pending", s.store.Cursor().Seq, s.machine.Pending())
	case "abort":
		s.check(s.machine.Abort())
		s.hold = false
		return fmt.Sprintf("the log ends at %d", s.machine.Seq())
	case "restart":
		s.check(s.store.Close())
		s.open()
		return fmt.Sprintf("the log ends at %d", s.machine.Seq())
	case "rebuild":
		s.check(s.store.Close())
		s.fs = vfs.NewMem()
		s.open()
		facts := make([]projections.Fact, len(s.log))
		for i, e := range s.log {
			facts[i].Event = e
		}
		s.check(s.machine.adopt(facts))
		return fmt.Sprintf("the log ends at %d", s.machine.Seq())
	}
	s.t.Fatalf("%s: unknown command %s", d.Pos, command)
	return ""
}

func newMutation(op, collection, id string, args []datadriven.CmdArg) *schema.Mutation {
	var body string
	header := make(schema.Header)
	properties := make(map[string]json.RawMessage)
	for _, arg := range args {
		switch value := strings.Join(arg.Vals, ","); arg.Key {
		case "if-match":
			header[schema.HeaderIfMatch] = []string{value}
		case "msg-id":
			header[schema.HeaderRequestID] = []string{value}
		case "expire-at":
			header[schema.HeaderExpireAt] = []string{value}
		case "keep-deadline":
			header[schema.HeaderKeepDeadline] = []string{value}
		case "defaultTtl", "previousImages", "warnBefore", "metadata":
			properties[arg.Key] = json.RawMessage(value)
		case "indexingMode":
			properties["indexingPolicy"] = json.RawMessage(fmt.Sprintf(`{"indexingMode":%q}`, value))
		default:
			body = arg.Key
		}
	}
	if len(properties) > 0 {
		all, _ := json.Marshal(properties)
		body = string(all)
	}
	mu := schema.NewNamedMutation(op, collection, id, []byte(body))
	mu.SetHeaders(header)
	return mu
}

func (s *scenario) decide(mu *schema.Mutation) string {
	for {
		o, err := s.machine.Decide(s.now, mu)
		s.check(err)
		if o.Need != NeedCommit {
			return shown(o)
		}
		s.commit(s.machine.Seq())
	}
}

// shown formats an outcome.
func shown(o Outcome) string {
	switch {
	case o.Repeat != 0:
		return fmt.Sprintf("repeat of event %d", o.Repeat)
	case o.Fault != nil:
		return fmt.Sprintf("%d %s: %s", o.Code, o.Fault.Name, o.Fault.Message)
	}
	if o.Version != 0 {
		return fmt.Sprintf("%d the content of version %d of %d", o.Code, o.Version, o.TS)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", o.Code, o.Body))
}

func (s *scenario) folded(name string) *schema.Collection {
	c, ok := s.store.Collection(schema.CollectionName(name))
	if !ok {
		s.t.Fatalf("no collection %s is folded", name)
	}
	return c
}

func (s *scenario) getCollection(name string) string {
	c := s.folded(name)
	n, err := s.store.Count(c, s.now/1000)
	s.check(err)
	return string(c.AppendReplyWithSize(nil, n.Documents, n.Bytes, n.Held))
}

func (s *scenario) batch(collection string, atomic bool, input string) string {
	type operation struct {
		Op       string          `json:"op"`
		ID       string          `json:"id"`
		Body     json.RawMessage `json:"body,omitempty"`
		IfMatch  string          `json:"ifMatch,omitempty"`
		ExpireAt json.RawMessage `json:"expireAt,omitempty"`
		Keep     json.RawMessage `json:"keepDeadline,omitempty"`
	}
	var operations []operation
	for line := range strings.Lines(input) {
		op, args, err := datadriven.ParseLine(line)
		s.check(err)
		operation := operation{Op: op, ID: args[0].Key}
		for _, arg := range args[1:] {
			switch arg.Key {
			case "if-match":
				operation.IfMatch = arg.Vals[0]
			case "expire-at":
				operation.ExpireAt = json.RawMessage(arg.Vals[0])
			case "keep-deadline":
				operation.Keep = json.RawMessage(arg.Vals[0])
			default:
				operation.Body = json.RawMessage(arg.Key)
			}
		}
		operations = append(operations, operation)
	}
	envelope, err := json.Marshal(map[string]any{"operations": operations, "atomic": atomic})
	s.check(err)
	b, fault := schema.ParseBatch(collection, envelope)
	if fault != nil {
		s.t.Fatal(fault)
	}
	o, err := s.machine.DecideBatch(s.now, NewBatchRun(b, 1<<20), math.MaxInt)
	s.check(err)
	var reply struct {
		Results []struct {
			Code int
			Body json.RawMessage
		}
	}
	s.check(json.Unmarshal(o.Body, &reply))
	var out strings.Builder
	for _, r := range reply.Results {
		var fault struct{ Error, Message string }
		if r.Code >= 400 {
			s.check(json.Unmarshal(r.Body, &fault))
			fmt.Fprintf(&out, "%d %s: %s\n", r.Code, fault.Error, fault.Message)
		} else {
			out.WriteString(strings.TrimSpace(fmt.Sprintf("%d %s", r.Code, r.Body)) + "\n")
		}
	}
	return out.String()
}

// advance moves the clock to a time. On the way it sweeps everything when it is due,
// except with unswept.
func (s *scenario) advance(to int64, unswept bool) {
	for !unswept {
		second, ok := s.machine.NextDue()
		if !ok || second*1000 > to {
			break
		}
		s.now = max(s.now, second*1000)
		more, err := s.machine.Expire(s.now, 1000)
		s.check(err)
		if !s.hold {
			s.commit(s.machine.Seq())
		}
		if again, ok := s.machine.NextDue(); !more && ok && again <= second {
			s.t.Fatalf("what is due at %d was expired, and still is due at %d", second, again)
		}
	}
	s.now = to
}

func seconds(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) }

// news returns the events since the last call, pending ones with a mark.
func (s *scenario) news() string {
	var out strings.Builder
	show := func(e *schema.Event, mark string) {
		fmt.Fprintf(&out, "%s%d at %s %s", mark, e.Seq, seconds(e.Time), e.Type)
		e.Headers(func(name, value string) {
			if name != schema.HeaderTime && name != schema.HeaderID && name != schema.HeaderMsgOp {
				fmt.Fprintf(&out, " %s=%s", strings.ToLower(strings.TrimPrefix(name, "Lapse-")), value)
			}
		})
		if e.Type.OnDocument() {
			fmt.Fprintf(&out, " %s/%s", e.Collection, e.ID)
		} else if !e.Type.Internal() {
			fmt.Fprintf(&out, " %s", e.Collection)
		}
		fmt.Fprintf(&out, " %s\n", e.Body)
	}
	s.shown = min(s.shown, len(s.log))
	for _, e := range s.log[s.shown:] {
		show(e, "")
	}
	s.shown = len(s.log)
	for _, fact := range s.machine.pending {
		show(fact.Event, "pending: ")
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return strings.ReplaceAll(out.String(), " \n", "\n")
}
