package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/lapsedb/lapse/schema"
)

// TestGolden runs the files in testdata. Their steps are:
//
//	mutations [until=SECONDS]  applies mutations, `SECONDS op collection[/id] body`
//	                           a line, and prints the log; the clock stops at
//	                           until, or else when nothing is pending
//	audit [stream] [partial]   spoils a copy of that log as the lines say and
//	                           prints the findings
//
// Sequences of the log are multiplied by ten, which leaves room for insertions,
// unless it is a stream. The lines of audit are
//
//	drop SEQ           removes an event
//	copy SEQ to NEW    inserts it again, with another sequence
//	move SEQ to NEW    moves it to another sequence
//	swap SEQ SEQ       swaps two events
//	set SEQ NAME=VALUE ...
//	foreign SEQ        inserts a message that is no event
//	from SEQ, to SEQ   removes the events before, or after
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/golden", func(t *testing.T, path string) {
		var log []schema.Event
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "mutations":
				log = simulated(t, d)
				return shown(log)
			case "audit":
				events := slices.Clone(log)
				if !d.HasArg("stream") {
					events = spread(exported(events))
				}
				for line := range strings.Lines(d.Input) {
					events = spoil(t, events, strings.Fields(line))
				}
				r := auditOf(t, Options{Stream: d.HasArg("stream"), Partial: d.HasArg("partial")}, events)
				text := fmt.Sprintf("%d due: %d expired, %d pending, %d missing; %d alive", r.Due, r.Expired, r.Pending, r.Lost, r.Documents)
				if !r.Complete {
					text += "; incomplete"
				}
				if r.Headless {
					text += "; headless"
				}
				if r.Unexplained > 0 {
					text += fmt.Sprintf("; %d mutations without an event", r.Unexplained)
				}
				for _, f := range r.Findings {
					text += fmt.Sprintf("\n%d %s %s/%s: %s", f.Seq, f.Rule, f.Collection, f.ID, f.Message)
				}
				return text + "\n"
			}
			d.Fatalf(t, "unknown step %q", d.Cmd)
			return ""
		})
	})
}

var beginning = time.Date(2015, 5, 17, 10, 0, 0, 0, time.UTC).UnixMilli()

func simulated(t *testing.T, d *datadriven.TestData) []schema.Event {
	s := newSimulation(t)
	for line := range strings.Lines(d.Input) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 4)
		seconds, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			d.Fatalf(t, "%s: %v", line, err)
		}
		collection, id, _ := strings.Cut(fields[2], "/")
		body := ""
		if len(fields) > 3 {
			body = fields[3]
		}
		mutation := schema.NewNamedMutation(fields[1], collection, id, []byte(body))
		if id, ok := strings.CutPrefix(collection, "repeat:"); ok {
			mutation = schema.NewNamedMutation(fields[1], id, "", []byte(body))
			mutation.MsgID = "m"
		}
		s.mutate(beginning+int64(seconds*1000), mutation)
	}
	var err error
	if d.HasArg("until") {
		var until int64
		d.ScanArgs(t, "until", &until)
		if err = s.Advance(beginning + until*1000); err == nil {
			err = s.Flush()
		}
	} else {
		err = s.Finish()
	}
	must(t, err)
	return s.log
}

// shown formats a log in short: times in seconds from the beginning.
func shown(log []schema.Event) string {
	var b strings.Builder
	for _, e := range log {
		fmt.Fprintf(&b, "%d %.3f %s %s", e.Seq, float64(e.Time-beginning)/1000, e.Type, e.Collection)
		if e.ID != "" {
			fmt.Fprintf(&b, "/%s", e.ID)
		}
		if e.Previous != 0 {
			fmt.Fprintf(&b, " previous=%d", e.Previous)
		}
		if e.Type.HasDeadline() {
			fmt.Fprintf(&b, " deadline=%d ttl=%d rule=%s", e.Deadline.At-beginning/1000, e.Deadline.TTL, e.Deadline.Rule)
		}
		if e.Cause != 0 {
			fmt.Fprintf(&b, " cause=%d", e.Cause)
		}
		fmt.Fprintf(&b, " %s\n", e.Body)
	}
	return b.String()
}

// spread multiplies sequences by ten.
func spread(log []schema.Event) []schema.Event {
	for i := range log {
		log[i].Seq *= 10
		log[i].Previous *= 10
		log[i].Restored *= 10
	}
	return log
}

func spoil(t *testing.T, log []schema.Event, words []string) []schema.Event {
	t.Helper()
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(words[i], 10, 64)
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return n
	}
	at := func(seq uint64) int {
		i := slices.IndexFunc(log, func(e schema.Event) bool { return e.Seq == seq })
		if i < 0 {
			t.Fatalf("%v: there is no event %d", words, seq)
		}
		return i
	}
	put := func(e schema.Event) {
		i := slices.IndexFunc(log, func(l schema.Event) bool { return l.Seq > e.Seq })
		if i < 0 {
			i = len(log)
		}
		if i > 0 {
			e.Time = max(e.Time, log[i-1].Time)
		}
		if i < len(log) {
			e.Time = min(e.Time, log[i].Time)
		}
		log = slices.Insert(log, i, e)
	}
	switch words[0] {
	case "drop":
		i := at(number(1))
		log = slices.Delete(log, i, i+1)
	case "copy", "move":
		e := log[at(number(1))]
		if words[0] == "move" {
			i := at(e.Seq)
			log = slices.Delete(log, i, i+1)
		}
		e.Seq = number(3)
		put(e)
	case "swap":
		i, j := at(number(1)), at(number(2))
		log[i], log[j] = log[j], log[i]
	case "foreign":
		put(schema.Event{Seq: number(1)})
	case "from":
		log = log[at(number(1)):]
	case "to":
		log = log[:at(number(1))+1]
	case "set":
		for _, word := range words[2:] {
			name, value, _ := strings.Cut(word, "=")
			set(t, &log[at(number(1))], name, value)
		}
	default:
		t.Fatalf("%v: nothing known to do", words)
	}
	return log
}

// set sets a field of an event.
func set(t *testing.T, e *schema.Event, name, value string) {
	t.Helper()
	n, _ := strconv.ParseInt(value, 10, 64)
	switch name {
	case "time":
		seconds, _ := strconv.ParseFloat(value, 64)
		e.Time = beginning + int64(seconds*1000)
	case "type":
		e.Type = schema.ParseEventType(value)
	case "collection":
		e.Collection = schema.CollectionName(value)
	case "id":
		e.ID = schema.DocumentID(value)
	case "previous":
		e.Previous = schema.Version(n)
	case "restored":
		e.Restored = schema.Version(n)
	case "deadline":
		e.Deadline.At = beginning/1000 + n
	case "ttl":
		e.Deadline.TTL = int32(n)
	case "rule":
		if e.Deadline.Rule = schema.ParseRule(value); e.Deadline.Rule == schema.NoRule {
			t.Fatalf("there is no rule %s", value)
		}
	case "cause":
		e.Cause = uint64(n)
	case "body":
		e.Body = []byte(value)
	default:
		t.Fatalf("there is no %s", name)
	}
}
