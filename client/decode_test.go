package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

// strict refuses members that it does not know.
type strict struct {
	ID  string `json:"id"`
	N   int    `json:"n"`
	TTL int    `json:"ttl"`
}

func (s *strict) UnmarshalJSON(data []byte) error {
	type plain strict
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(s))
}

// TestDecode: members that lapse adds do not prevent decoding, and types that have them
// get them.
func TestDecode(t *testing.T) {
	const text, number = `{"id":"a","s":"<x>","_ts":5,"_etag":"7"}`, `{"id":"a","n":3,"ttl":60,"_ts":5,"_etag":"7"}`
	check := func(body string, want any, got any, err error) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) || (err != nil) != (want == nil) {
			t.Errorf("%s: %v, %v, want %v", body, got, err, want)
		}
	}
	type system struct {
		TS   int64  `json:"_ts"`
		ETag string `json:"_etag"`
	}
	type wrong struct {
		TS string `json:"_ts"`
	}
	texts, err := decoded[map[string]string](text)
	check(text, map[string]string{"id": "a", "s": "<x>"}, texts, err)
	texts, err = decoded[map[string]string](strings.Replace(text, "{", `{"ttl":5,`, 1))
	check("with ttl", map[string]string{"id": "a", "s": "<x>"}, texts, err)
	texts, err = decoded[map[string]string](strings.Replace(text, "{", `{"_deadline":"mine",`, 1))
	check("with _deadline", map[string]string{"id": "a", "s": "<x>", "_deadline": "mine"}, texts, err)
	numbers, err := decoded[map[string]int](number)
	check(number, map[string]int{"n": 3, "ttl": 60}, numbers, err)
	narrow, err := decoded[strict](number)
	check(number, strict{"a", 3, 60}, narrow, err)
	all, err := decoded[map[string]any](text)
	check(text, map[string]any{"id": "a", "s": "<x>", "_ts": 5, "_etag": "7"}, all, err)
	own, err := decoded[system](text)
	check(text, system{5, "7"}, own, err)
	raw, err := decoded[json.RawMessage](text)
	check(text, []byte(text), []byte(raw), err)
	if got, err := decoded[wrong](text); err == nil {
		t.Errorf("a member of another type: %v", got)
	}
	if got, err := decoded[map[string]string](number); err == nil || got != nil {
		t.Errorf("other content: %v, %v", got, err)
	}
}

func decoded[T any](body string) (T, error) {
	item, err := client.Decode[T](client.Result{Code: 200, Body: json.RawMessage(body)})
	return item.Value, err
}

// TestDecodeError: a call whose reply does not decode fails with a DecodeError, which no
// refusal is, and with what the reply says of the document.
func TestDecodeError(t *testing.T) {
	s := newStandin(t).serve()
	c := s.client()
	coll, ctx := s.collection(c), t.Context()
	const wrongType = `{"id":"a","total":"five","_ts":5,"_etag":"7"}`
	put := func(item client.Item[order], err error) (string, error) { return item.ETag, err }
	batch := func() (client.Results, error) { return coll.Batch().Upsert("a", order{}).Run(ctx) }
	collection := func(_ *client.Collection, err error) (string, error) { return "", err }
	calls := map[string]struct {
		tail, body string
		call       func() (etag string, err error)
		id         bool // the error names the document
	}{
		"create":  {"document.create.orders.a", wrongType, func() (string, error) { return put(client.Create(ctx, coll, "a", order{})) }, true},
		"upsert":  {"document.upsert.orders.a", wrongType, func() (string, error) { return put(client.Upsert(ctx, coll, "a", order{})) }, true},
		"replace": {"document.replace.orders.a", wrongType, func() (string, error) { return put(client.Replace(ctx, coll, "a", order{})) }, true},
		"patch":   {"document.patch.orders.a", wrongType, func() (string, error) { return put(client.Patch[order](ctx, coll, "a", order{})) }, true},
		"restore": {"document.restore.orders.a", wrongType, func() (string, error) { return put(client.Restore[order](ctx, coll, "a", "")) }, true},
		"get":     {"document.get.orders.a", wrongType, func() (string, error) { return put(client.Get[order](ctx, coll, "a")) }, true},
		"touch": {"document.touch.orders.a", `[]`, func() (string, error) {
			touched, err := client.Touch(ctx, coll, "a")
			return touched.ETag, err
		}, true},
		"batch":  {"batch.orders", `{"results":[{"code":201,"body":` + wrongType + `}]}`, func() (string, error) { results, _ := batch(); return put(client.Decode[order](results[0])) }, true},
		"query":  {"query.orders", `{"documents":[` + wrongType + `]}`, func() (string, error) { _, err := client.QueryPage[order](ctx, coll); return etagOf(err), err }, true},
		"short":  {"batch.orders", `{"results":[]}`, func() (string, error) { _, err := batch(); return "", err }, false},
		"made":   {"collection.create.orders", `{"id":"orders","defaultTtl":"x"}`, func() (string, error) { return collection(c.CreateCollection(ctx, "orders")) }, false},
		"change": {"collection.replace.orders", `{"results":[]}`, func() (string, error) { return collection(c.ChangeCollection(ctx, "orders")) }, false},
	}
	for name := range maps.Clone(calls) {
		call := calls[name]
		call.body = `{"id":` // cut off
		if name != "batch" {
			calls[name+", cut off"] = call
		}
	}
	for name, test := range calls {
		s.answer(test.tail, 200, test.body)
		etag, err := test.call()
		failed, ok := errors.AsType[*client.DecodeError](err)
		if _, coded := errors.AsType[*client.Error](err); !ok || coded {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if failed.Collection != "orders" || failed.Seq != 9 || len(failed.Body) == 0 || etag != failed.ETag {
			t.Errorf("%s: %+v, ETag %q", name, failed, etag)
		}
		if known := test.body == wrongType || strings.Contains(test.body, wrongType); known != (failed.ETag == "7") ||
			known && !strings.Contains(err.Error(), `document "a" of orders is stored as version 7, but`) {
			t.Errorf("%s: version %q, %v", name, failed.ETag, err)
		}
		if test.id && !strings.HasPrefix(name, "query, ") && failed.ID != "a" {
			t.Errorf("%s: of %q", name, failed.ID)
		}
	}

	// One document does not end a query.
	s.answer("query.orders", 200, `{"documents":[{"id":"a","total":1},{"id":"b","total":"two"},{"id":"c","total":3}]}`)
	var got []string
	for item, err := range client.Query[order](ctx, coll) {
		got = append(got, fmt.Sprint(item.ID, item.Value.Total, err != nil))
	}
	for page, err := range client.QueryPages[order](ctx, coll) {
		got = append(got, fmt.Sprint(len(page.Items), err != nil))
	}
	if want := "a1 false b0 true c3 false 2 true"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}

func etagOf(err error) string {
	failed, _ := errors.AsType[*client.DecodeError](err)
	return failed.ETag
}

// TestLostAnswer: a request whose answer is lost does not look refused.
func TestLostAnswer(t *testing.T) {
	s := newStandin(t)
	s.log()
	for name, end := range map[string]func(*nats.Conn, *nats.Msg){
		"closed":       func(nc *nats.Conn, _ *nats.Msg) { nc.Close() },
		"disconnected": func(nc *nats.Conn, _ *nats.Msg) { _ = nc.ForceReconnect() },
		"not lapse":    func(_ *nats.Conn, m *nats.Msg) { _ = m.Respond([]byte("hello")) },
	} {
		for call, subject := range map[string]string{"do": "lapse.main.api.document.delete.orders.a", "submit": "lapse.other.mutations.document.delete.orders.a"} {
			c := s.client(client.WithDatabase(map[string]string{"do": "main", "submit": "other"}[call]))
			sub := s.subscribe(subject, func(m *nats.Msg) { end(c.Conn(), m) })
			var err error
			if call == "do" {
				_, err = c.Do(t.Context(), "document.delete", "orders", "a", nil)
			} else {
				_, err = c.Submit(t.Context(), "document.delete", "orders", "a", nil)
			}
			if !errors.Is(err, client.ErrTimeout) || errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "may have been applied") {
				t.Errorf("%s, %s: %v", name, call, err)
			}
			_ = sub.Unsubscribe()
		}
	}
	c := s.client()
	c.Conn().Close()
	if _, err := c.Do(t.Context(), "document.delete", "orders", "a", nil); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("closed before: %v", err)
	}
	if _, err := c.Submit(t.Context(), "document.delete", "orders", "a", nil); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("submitted after: %v", err)
	}
}

// TestUnreadableEvent: an event that a client cannot read says so. A loop may go on; one
// that ends keeps its position.
func TestUnreadableEvent(t *testing.T) {
	s := newStandin(t).log()
	c := s.client()
	s.created("orders", "a")
	must(t)(s.nc.Request("lapse.main.events.orders.DocumentRenamed", []byte("{}"), patience))
	s.created("orders", "b")
	read := func(goOn bool) (got []string) {
		for e, err := range c.Changes(t.Context(), client.Durable("d"), client.FromStart(), client.UntilNow()) {
			failed, decoding := errors.AsType[*client.DecodeError](err)
			switch {
			case err == nil:
				got = append(got, e.ID)
			case !decoding || failed.Seq != 2 || failed.Collection != "orders" || errors.Is(err, client.ErrUnavailable):
				t.Fatal(err)
			case !goOn:
				return append(got, "ended")
			default:
				got = append(got, "passed")
			}
		}
		return got
	}
	first := read(false)
	if err := c.Handle(t.Context(), nil, client.Durable("d"), client.UntilNow()); err == nil || !strings.Contains(err.Error(), "event 2") {
		t.Errorf("handle: %v", err)
	}
	if got := fmt.Sprint(first, read(true)); got != "[a ended] [passed b]" {
		t.Error(got)
	}
}
