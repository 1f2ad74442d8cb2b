package service_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestWire runs the conversations in testdata/wire with a server. Every reply must obey
// the rules for all replies, and no refusal may change the log. The steps are:
//
//	request [Header=value …] [arg]  a subject after lapse.main.api., then lines of body;
//	                                CURSOR is the last cursor of a history or query
//	publish [Header=value …] [arg]  a subject after lapse.main.mutations., then lines of
//	                                body; judged before the next step
//	log                             the events since the last log
//	restart                         the processor stops and starts
//	rebuild                         the same, with the projection removed in between
//	clock to=D                      set the clock ahead of the right time, until noticed
//
// An arg makes a body that is long or cannot be written down: size=n is a document of n
// bytes as sent, depth=n one that nests n deep, hex=… any bytes; times=n repeats the
// body's line as the operations of a batch.
func TestWire(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/wire", func(t *testing.T, path string) {
		s := &conversation{clock: processortest.NewClock()}
		s.Wire = processortest.New(t, func(o *processor.Options) { o.Clock, o.SameClock = s.clock.Read, true })
		datadriven.RunTest(t, path, s.step)
	})
}

type conversation struct {
	*processortest.Wire
	clock *processortest.Clock
	told  uint64 // last sequence shown by log
	last  string // cursor of a history or query
}

func (s *conversation) step(t *testing.T, d *datadriven.TestData) string {
	s.T = t
	var headers []string
	subject, body, _ := strings.Cut(d.Input, "\n")
	for _, arg := range d.CmdArgs {
		switch value := strings.Join(arg.Vals, ","); arg.Key {
		case "size", "depth", "hex", "times":
			body = makeBody(t, arg.Key, value, body)
		default:
			headers = append(headers, arg.Key, value)
		}
	}
	switch d.Cmd {
	case "request":
		before := s.End()
		body = strings.ReplaceAll(body, "CURSOR", s.last)
		r := s.Ask(subject, body, headers...)
		if after := s.End(); r.Code >= 400 && after != before {
			t.Fatalf("%s: %s, and the log went from %d to %d", d.Pos, r, before, after)
		}
		refusedToo(s.Wire, t, d.Pos, subject, body, headers, r)
		return s.showReply(r)
	case "publish":
		s.Judged(s.Publish(subject, body, headers...))
		return ""
	case "log":
		return s.newEvents()
	case "restart":
		s.Restart()
		return ""
	case "clock":
		ahead, err := time.ParseDuration(d.CmdArgs[0].Vals[0])
		s.Check(err)
		s.setClock(ahead)
		return ""
	case "rebuild":
		s.Stop()
		s.RemoveProjection()
		s.Start()
		return ""
	}
	d.Fatalf(t, "unknown step %q", d.Cmd)
	return ""
}

// setClock sets the clock and waits until the processor has noticed.
func (s *conversation) setClock(ahead time.Duration) {
	s.clock.Set(ahead)
	s.Eventually("the clock is looked at", func() bool {
		c := s.Inside().Service.Clock.Status()
		off := time.Duration(c.OffByMs)*time.Millisecond - ahead
		return c.Suspect == (ahead.Abs() > time.Minute) && off.Abs() < time.Minute
	})
}

func makeBody(t *testing.T, how, value, line string) string {
	if how == "hex" {
		b, err := hex.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatal(err)
	}
	switch how {
	case "size":
		return `{"p":"` + strings.Repeat("x", n-len(`{"p":""}`)) + `"}`
	case "depth":
		return `{"p":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	default:
		return `{"operations":[` + strings.Repeat(line+",", n-1) + line + `]}`
	}
}

// Text that differs from run to run, and the defaults of a collection.
var (
	times      = regexp.MustCompile(`"(_ts|_deadline)":\d{10}\b`)
	stamps     = regexp.MustCompile(`"(time|logTime|host|pid|offByMs|digest|now|from|until|deadline|residentBytes|heapBytes|cacheBytes|memtableBytes)":("[^"]+"|-?\d+)`)
	moments    = regexp.MustCompile(`"forMs":\d+,`) // left out where it is 0
	clocks     = regexp.MustCompile(`(the clock says|ends at) [-0-9T:]+Z`)
	filling    = regexp.MustCompile(`x{100,}`)
	usualParts = strings.NewReplacer(`,"indexingPolicy":{"indexingMode":"consistent","includedPaths":[]}`, "", `,"previousImages":true`, "")
)

func shorten(s string) string {
	s = filling.ReplaceAllStringFunc(s, func(x string) string { return fmt.Sprintf("<%d x>", len(x)) })
	s = clocks.ReplaceAllString(moments.ReplaceAllString(s, ""), "$1 T")
	s = stamps.ReplaceAllString(times.ReplaceAllString(s, `"$1":T`), `"$1":T`)
	return usualParts.Replace(s)
}

func (s *conversation) showReply(r processortest.Reply) string {
	if r.Error != "" {
		return fmt.Sprintf("%d %s: %s\n", r.Code, r.Error, clocks.ReplaceAllString(r.Message, "$1 T"))
	}
	if r.Code == 204 {
		return "204\n"
	}
	// Show one line per result of a batch or event of a history.
	var list struct {
		Results, Events []json.RawMessage
		Cursor          string
	}
	if json.Unmarshal(r.Body, &list) == nil && list.Results != nil || list.Events != nil {
		var b strings.Builder
		fmt.Fprintf(&b, "%d with %d\n", r.Code, len(list.Results)+len(list.Events))
		for i, element := range append(list.Results, list.Events...) {
			if i == 10 {
				b.WriteString("…\n")
				break
			}
			b.WriteString(shorten(string(element)) + "\n")
		}
		if list.Cursor != "" {
			s.last = list.Cursor
			b.WriteString("and a cursor\n")
		}
		return b.String()
	}
	if list.Cursor != "" {
		s.last = list.Cursor
	}
	return fmt.Sprintf("%d %s\n", r.Code, strings.Replace(shorten(string(r.Body)), list.Cursor, "", 1))
}

func (s *conversation) newEvents() string {
	var b strings.Builder
	for _, e := range s.Events() {
		if e.Seq > s.told {
			s.told = e.Seq
			b.WriteString(shorten(string(e.AppendJSON(nil))) + "\n")
		}
	}
	return b.String()
}

// TestObjectiveInStatus: status reports missed expiries while they are overdue, counted
// from the deadline or from the policy that made them due, and afterwards, for a minute,
// how late they were.
func TestObjectiveInStatus(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		objective := func() schema.LatenessObjective {
			t.Helper()
			return *w.Status().LatenessObjective
		}
		if s := w.Status(); s.Version != "1.2.3" || s.Database != "main" || s.Role != "writer" || s.Seq != w.End() || s.LogTime != time.Now().UnixMilli() ||
			s.Documents != 0 || s.LatenessMs != (schema.Lateness{}) {
			t.Errorf("a new database has the status %+v", s)
		}
		w.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		w.Want(201, "collection.create.long", `{"defaultTtl":1000}`)
		w.Want(201, "document.create.long.a", `{}`)
		ts := w.TS(w.Want(201, "document.create.c.a", `{}`))
		if o := objective(); o != (schema.LatenessObjective{Ms: 3000, Share: 0.99, Kept: true}) {
			t.Errorf("at the start: %+v", o)
		}
		processortest.SleepUntil(ts+9, 500)
		release := w.HoldWriter()
		processortest.SleepUntil(ts+10+3, 900)
		if o := objective(); o.OverdueMs != 3000 || !o.Kept {
			t.Errorf("before it is missed: %+v", o)
		}
		processortest.SleepUntil(ts+10+4, 0)
		if o := objective(); o.OverdueMs != 4000 || o.Kept || o.Expired != 0 {
			t.Errorf("when it is missed: %+v", o)
		}
		if s := w.Status(); s.Documents != 1 || s.PendingExpiry != 1 || s.Overdue != 1 {
			t.Errorf("with one document overdue, and one to expire: %+v", s)
		}
		release()
		processortest.SleepUntil(ts+10+5, 0)
		if o := objective(); o.OverdueMs != 0 || o.Kept || o.Expired != 1 || o.Late != 1 {
			t.Errorf("afterwards: %+v", o)
		}
		if l := w.Status().LatenessMs; l.Max < 3950 || l.Max > 4050 || l.P99 != l.Max || l.P50 != l.Max {
			t.Errorf("after an expiry that was 4 s late: %+v", l)
		}
		processortest.SleepUntil(ts+200, 0)
		if l := w.Status().LatenessMs; l != (schema.Lateness{}) {
			t.Errorf("minutes later: %+v", l)
		}
		w.Want(200, "collection.replace.long", `{"defaultTtl":5}`)
		processortest.SleepUntil(ts+201, 0)
		if o := objective(); o != (schema.LatenessObjective{Ms: 3000, Share: 0.99, Expired: 1, Kept: true}) {
			t.Errorf("when a policy made it due: %+v", o)
		}
	}, func(o *processor.Options) { o.LatenessObjective = 3 * time.Second })
}
