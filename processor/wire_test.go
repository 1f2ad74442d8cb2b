package processor

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
)

// TestWire holds conversations with a running server, as in testdata/wire. Every
// reply is checked for what the contract says of all of them, and every refusal
// for having left the log alone. The steps are:
//
//	request [Header=value …] [body=…]   a subject after lapse.main.api., and a body on the lines after it
//	publish [Header=value …] [body=…]   a mutation after lapse.main.mutations., judged before the next step
//	log                                 the events since the last log
//	restart                             the processor stops and starts
//	rebuild                             it loses its projection in between
//	clock to=D                          its clock is set ahead of the right time, and it notices
//
// What is long or not to be written down is asked for by body=: size=n is a
// document of n bytes as sent, depth=n one that nests n deep, hex=… any bytes;
// times=n repeats the body's line as the operations of a batch.
func TestWire(t *testing.T) {
	datadriven.Walk(t, "testdata/wire", func(t *testing.T, path string) {
		s := &conversation{clock: newWrongClock()}
		s.wire = newWire(t, func(o *Options) { o.Clock, o.SameClock = s.clock.read, true })
		datadriven.RunTest(t, path, s.step)
	})
}

type conversation struct {
	*wire
	clock *wrongClock
	told  uint64 // of the log
}

func (s *conversation) step(t *testing.T, d *datadriven.TestData) string {
	s.t = t
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
		before := s.end()
		r := s.ask(subject, body, headers...)
		if after := s.end(); r.code >= 400 && after != before {
			t.Fatalf("%s: %s, and the log went from %d to %d", d.Pos, r, before, after)
		}
		s.refusedToo(t, d.Pos, subject, body, headers, r)
		return showReply(r)
	case "publish":
		s.judged(s.publish(subject, body, headers...))
		return ""
	case "log":
		return s.newEvents()
	case "restart":
		s.restart()
		return ""
	case "clock":
		ahead, err := time.ParseDuration(d.CmdArgs[0].Vals[0])
		s.check(err)
		s.setClock(ahead)
		return ""
	case "rebuild":
		s.stop()
		s.removeProjection()
		s.start()
		return ""
	}
	d.Fatalf(t, "unknown step %q", d.Cmd)
	return ""
}

// setClock sets the clock and waits until the processor sees how it stands now.
func (s *conversation) setClock(ahead time.Duration) {
	s.clock.set(ahead)
	s.eventually("the clock is looked at", func() bool {
		c := s.processor.service.clock.status()
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

// What differs from run to run, and what is usual of a collection.
var (
	times      = regexp.MustCompile(`"_ts":\d{10}\b`)
	stamps     = regexp.MustCompile(`"(time|logTime|offByMs|digest|now|from|until)":("[^"]+"|-?\d+)`)
	moments    = regexp.MustCompile(`"forMs":\d+,`) // left out where it is 0
	clocks     = regexp.MustCompile(`(the clock says|ends at) [-0-9T:]+Z`)
	filling    = regexp.MustCompile(`x{100,}`)
	usualParts = strings.NewReplacer(usualIndexing, "", usualImages, "")
)

func shorten(s string) string {
	s = filling.ReplaceAllStringFunc(s, func(x string) string { return fmt.Sprintf("<%d x>", len(x)) })
	s = clocks.ReplaceAllString(moments.ReplaceAllString(s, ""), "$1 T")
	s = stamps.ReplaceAllString(times.ReplaceAllString(s, `"_ts":T`), `"$1":T`)
	return usualParts.Replace(s)
}

func showReply(r wireReply) string {
	if r.error != "" {
		return fmt.Sprintf("%d %s: %s\n", r.code, r.error, clocks.ReplaceAllString(r.message, "$1 T"))
	}
	if r.code == 204 {
		return "204\n"
	}
	// A batch's or history's answer is shown a line for each of its own.
	var list struct{ Results, Events []json.RawMessage }
	if json.Unmarshal(r.body, &list) == nil && list.Results != nil || list.Events != nil {
		var b strings.Builder
		fmt.Fprintf(&b, "%d with %d\n", r.code, len(list.Results)+len(list.Events))
		for i, one := range append(list.Results, list.Events...) {
			if i == 10 {
				b.WriteString("…\n")
				break
			}
			b.WriteString(shorten(string(one)) + "\n")
		}
		return b.String()
	}
	return fmt.Sprintf("%d %s\n", r.code, shorten(string(r.body)))
}

func (s *conversation) newEvents() string {
	var b strings.Builder
	for _, e := range s.events() {
		if e.Seq > s.told {
			s.told = e.Seq
			b.WriteString(shorten(string(e.AppendJSON(nil))) + "\n")
		}
	}
	return b.String()
}
