package offline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// plain formats a reply without cursor and version, which differ between any two
// databases, and without host, pid, latenessObjective, storage, memory, test and processes, which only
// a service has.
func plain(r processortest.Reply) string {
	text := regexp.MustCompile(`"cursor":"[^"]*"|"version":"[^"]*"`).ReplaceAllString(r.String(), `"":""`)
	text = regexp.MustCompile(`,"latenessObjective":{[^}]*}`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`,"host":"[^"]*","pid":\d+|,"storage":{[^}]*}|,"memory":{[^}]*}|,"test":true|,"copies":.*"processes":\[[^]]*\]`).ReplaceAllString(text, "")
	return fmt.Sprintf("%d %s", r.Seq, text)
}

func lines(events []*schema.Event) string {
	var b []byte
	for _, e := range events {
		b = append(e.AppendJSON(b), '\n')
	}
	return string(b)
}

// drawnRequest is a random request of TestLocalIsTheService.
type drawnRequest struct {
	submit     bool
	tail, body string
	headers    []string
}

func (r drawnRequest) header() nats.Header {
	h := nats.Header{}
	for i := 0; i < len(r.headers); i += 2 {
		h.Set(r.headers[i], r.headers[i+1])
	}
	return h
}

func draw[T any](random *rand.Rand, all ...T) T { return all[random.IntN(len(all))] }

func drawRequest(random *rand.Rand) (r drawnRequest) {
	c := draw(random, "a", "a", "a", "b", "c", "no", "b%20d")
	id := draw(random, "x", "y", "z", "a%20b", "a%2")
	document := func() string {
		return draw(random, `{}`, `{"n":1}`, `{"n":2,"ttl":3}`, `{"n":3,"ttl":-1}`, `{"ttl":0}`, `{"n":"x","ttl":40}`, `[]`, `{"id":"x","n":4}`, ``)
	}
	properties := draw(random, ``, `{}`, `{"defaultTtl":3}`, `{"defaultTtl":40,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`,
		`{"defaultTtl":-1,"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/n"}]}}`, `{"defaultTtl":0}`,
		`{"indexingPolicy":{"indexingMode":"none"}}`, `{"defaultTtl":40,"previousImages":false}`,
		`{"defaultTtl":40,"warnBefore":30}`, `{"defaultTtl":3,"warnBefore":9,"previousImages":false}`, `{"warnBefore":0}`)
	switch random.IntN(33) {
	case 0, 1, 2:
		r.tail, r.body = "collection.create."+c, properties
	case 3:
		r.tail, r.body = "collection.replace."+c, properties
	case 4:
		r.tail = draw(random, "collection.delete.", "collection.get.", "collection.get.") + c
	case 5:
		r.tail = draw(random, "collection.list", "status", "status", "status.x", "nonsense", "document.frobnicate.a.x")
	case 6, 7, 8:
		r.tail = "document.get." + c + "." + id
	case 9, 10, 11, 12, 13:
		r.tail, r.body = "document.upsert."+c+"."+id, document()
	case 14, 15:
		r.tail, r.body = "document.create."+c+"."+id, document()
	case 16:
		r.tail, r.body = "document.replace."+c+"."+id, document()
	case 17, 18:
		r.tail, r.body = "document.patch."+c+"."+id, draw(random, `{"n":null}`, `{"m":{"k":1}}`, `{"ttl":3}`, `[]`, `{"ttl":"x"}`)
	case 19:
		r.tail = "document.delete." + c + "." + id
	case 20, 21, 22:
		var operations []string
		for range random.IntN(5) {
			op := draw(random, "get", "get", "create", "upsert", "replace", "patch", "delete", "nonsense")
			text := fmt.Sprintf(`{"op":%q,"id":%q`, op, draw(random, "x", "y", "z", ""))
			if body := document(); body != "" && op != "get" && op != "delete" {
				text += `,"body":` + body
			}
			if random.IntN(10) == 0 && op != "get" {
				text += fmt.Sprintf(`,"ifMatch":"%d"`, random.IntN(40))
			}
			operations = append(operations, text+"}")
		}
		r.tail = "batch." + c
		r.body = fmt.Sprintf(`{"operations":[%s],"atomic":%v}`, strings.Join(operations, ","), random.IntN(2) == 0)
	case 23:
		r.tail = "forecast." + c
		r.body = draw(random, ``, `{}`, `{"next":60,"bucket":7}`, `{"next":"1h","defaultTtl":2}`, `{"defaultTtl":null}`, `{"next":100,"defaultTtl":-1}`, `{"next":0}`, `[]`)
	case 24, 25:
		r.tail = "query." + c
		r.body = draw(random, ``, `{}`, `{"where":"doc.n >= 2"}`, `{"where":"doc.n == params.n","params":{"n":1}}`, `{"count":true}`,
			`{"orderBy":[{"path":"/n","desc":true}],"limit":2}`, `{"where":"doc."}`, `{"limit":0}`, `{"select":["/n"],"where":"doc._ts > 0"}`,
			`{"idPrefix":"a","explain":true}`, `{"idPrefix":"b","count":true}`, `{"idPrefix":""}`)
	case 26, 27, 28:
		r.tail = draw(random, "document.hold.", "document.release.", "document.touch.", "document.restore.") + c + "." + id
	default:
		r.tail, r.body = "history."+c+"."+id, draw(random, ``, `{"limit":2}`, `{"limit":0}`)
	}
	if random.IntN(8) == 0 {
		r.headers = draw(random,
			[]string{"If-Match", fmt.Sprint(random.IntN(60))}, []string{"If-Match", "*"}, []string{"If-Match", ""},
			[]string{"Nats-Msg-Id", fmt.Sprint(random.IntN(3))}, []string{"Nats-Msg-Id", fmt.Sprint(random.IntN(3))},
			[]string{"Lapse-Min-Seq", "2"}, []string{"Lapse-Min-Seq", "x"})
	}
	mutates := schema.ParseOp(strings.Join(strings.SplitN(r.tail+"..", ".", 3)[:2], ".")) != schema.NoOp
	r.submit = mutates && random.IntN(4) == 0
	return r
}

// TestLocalAdopts: a Local that adopts a log up to any event and moment answers as the
// original did then; a replay has the same digest and answers.
func TestLocalAdopts(t *testing.T) {
	const start = 1_000_000_000_000
	whole, err := offline.NewLocal(start)
	must(t, err)
	defer whole.Close()
	random := stress.Rand(t)
	ask := func(l *offline.Local, tail, body string) string {
		o, err := l.Request(tail, nil, []byte(body))
		must(t, err)
		return fmt.Sprint(o.Code, string(o.Body), o.Fault)
	}
	type moment struct {
		now     int64
		seq     uint64
		answers []string
	}
	questions := [][2]string{{"status", ""}, {"collection.list", ""}, {"query.a", ""}, {"query.b", `{"count":true}`}, {"document.get.a.x", ""}, {"history.a.x", ""}, {"collection.get.a", ""}, {"forecast.a", `{"defaultTtl":20}`}}
	var moments []moment
	for range stress.Pick(300, 3000) {
		must(t, whole.Advance(whole.Now()+draw[int64](random, 0, 1, 500, 1000, 3000, 40_000)))
		m := moment{now: whole.Now(), seq: whole.Seq()}
		for _, q := range questions {
			m.answers = append(m.answers, ask(whole, q[0], q[1]))
		}
		moments = append(moments, m)
		r := drawRequest(random)
		r.headers = nil
		ask(whole, r.tail, r.body)
	}
	for i := range stress.Pick(20, 300) {
		m := moments[random.IntN(len(moments))]
		part, err := offline.NewLocal(0)
		must(t, err)
		var log []*schema.Event
		for _, e := range whole.Log() {
			if e.Seq <= m.seq {
				var read schema.Event // decoded, as from a file
				must(t, read.UnmarshalJSON(e.AppendJSON(nil)))
				log = append(log, &read)
			}
		}
		misfits, err := part.Adopt(m.now, log)
		must(t, err)
		if misfits != 0 || part.Now() != m.now {
			t.Fatalf("%d misfits at %d, want none at %d", misfits, part.Now(), m.now)
		}
		for j, q := range questions {
			if got := ask(part, q[0], q[1]); got != m.answers[j] {
				t.Fatalf("moment %d: %s: %s, it was %s", i, q[0], got, m.answers[j])
			}
		}
		replay, err := offline.NewReplay(t.TempDir())
		must(t, err)
		for _, e := range log {
			must(t, replay.Add(e))
		}
		must(t, replay.Fold())
		if got, want := replay.Digest(), part.Digest(); got != want {
			t.Fatalf("moment %d: the digest is %s, it was %s", i, got, want)
		}
		body, err := replay.Query(t.Context(), m.now, "a", nil)
		if got := fmt.Sprint(200, string(body), (*schema.Error)(nil)); err == nil && got != m.answers[2] {
			t.Fatalf("moment %d: %s, it was %s", i, got, m.answers[2])
		} else if err != nil && !strings.Contains(m.answers[2], err.Error()) {
			t.Fatalf("moment %d: %v, it was %s", i, err, m.answers[2])
		}
		must(t, replay.Close())
		must(t, part.Finish())
		must(t, part.Close())
	}
}

// TestLocalKeepsNoInput: the caller may reuse the bytes of a request.
func TestLocalKeepsNoInput(t *testing.T) {
	l, err := offline.NewLocal(0)
	must(t, err)
	defer l.Close()
	body := []byte(`{"defaultTtl":30}`)
	_, err = l.Request("collection.create.a", nil, body)
	must(t, err)
	document := []byte(`{"id":"x","n":1}`)
	_, err = l.Request("document.create.a.x", nil, document)
	must(t, err)
	clear(document)
	o, err := l.Request("document.get.a.x", nil, nil)
	must(t, err)
	if !bytes.Contains(o.Body, []byte(`"n":1`)) {
		t.Errorf("the document is %s", o.Body)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLocalLastYear: a time past the year 9999, whose events could not be written, is
// refused.
func TestLocalLastYear(t *testing.T) {
	l, err := offline.NewLocal(schema.MaxTime - 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, tail := range []string{"collection.create.c", "document.create.c.a"} {
		if o, err := l.Request(tail, nil, []byte(`{"defaultTtl":10}`)); err != nil || o.Code != 201 {
			t.Fatal(o, err)
		}
	}
	if err := l.Finish(); err != nil {
		t.Error(err)
	}
	if err := l.Advance(schema.MaxTime + 1); err == nil {
		t.Error("it advances beyond the year 9999")
	}
	if _, err := l.Apply(schema.MaxTime+1, schema.NewMutation("document.delete.c.a", nil)); err == nil {
		t.Error("a mutation is judged beyond the year 9999")
	}
	if err := l.Advance(schema.MaxTime); err != nil {
		t.Error(err)
	}
	if n := len(l.Log()); n != 2 || l.Now() != schema.MaxTime {
		t.Errorf("%d events, it is %d", n, l.Now())
	}
}

// TestForecastLimitsOfLocal: a forecast ends at its limits of time and documents, and with its
// context.
func TestForecastLimitsOfLocal(t *testing.T) {
	l, err := offline.NewLocal(0)
	must(t, err)
	defer l.Close()
	_, err = l.Request("collection.create.c", nil, nil)
	must(t, err)
	_, err = l.Request("document.create.c.a", nil, []byte(`{}`))
	must(t, err)
	l.Limit(query.Limits{Time: 1})
	if _, err := l.Forecast(t.Context(), 0, "c", []byte(`{"defaultTtl":5}`)); !errors.Is(err, schema.ErrTimeout) {
		t.Errorf("without time: %v", err)
	}
	_, err = l.Request("collection.create.d", nil, []byte(`{"defaultTtl":-1}`))
	must(t, err)
	for i := range 400 {
		_, err = l.Request(fmt.Sprint("document.create.d.", i), nil, fmt.Appendf(nil, `{"ttl":%d}`, 1000+i))
		must(t, err)
	}
	l.Limit(query.Limits{Time: time.Minute, Scanned: 20})
	if _, err := l.Forecast(t.Context(), 0, "d", []byte(`{"next":1500,"bucket":50}`)); !errors.Is(err, schema.ErrTooLarge) || !strings.Contains(err.Error(), "more than 200 documents: ask for a shorter next") {
		t.Errorf("of too many documents: %v", err)
	}
	if f, err := l.Forecast(t.Context(), 0, "d", []byte(`{"next":1100,"bucket":50}`)); err != nil || !bytes.Contains(f, []byte(`"documents":400`)) {
		t.Errorf("of some of them: %s, %v", f, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l.Limit(query.Limits{})
	if _, err := l.Forecast(over, 0, "c", []byte(`{"defaultTtl":5}`)); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("at the end: %v", err)
	}
}
