package client_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// differs returns where got does not match want, nil if it does: members that want lacks may
// have any value, and null matches an absent member.
func differs(want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		if got != nil && object == nil {
			break
		}
		var faults []string
		for _, name := range slices.Sorted(maps.Keys(want)) {
			for _, fault := range differs(want[name], object[name]) {
				faults = append(faults, "."+name+fault)
			}
		}
		return faults
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			break
		}
		var faults []string
		for i := range want {
			for _, fault := range differs(want[i], list[i]) {
				faults = append(faults, fmt.Sprintf("[%d]%s", i, fault))
			}
		}
		return faults
	default:
		if want == got {
			return nil
		}
	}
	return []string{fmt.Sprintf(": %s, want %s", shown(got), shown(want))}
}

func shown(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// wantResult compares what a call returned with what is wanted, absent if it only has to
// succeed.
func wantResult(t *testing.T, name string, want json.RawMessage, got any, err error) {
	t.Helper()
	if err != nil {
		got = errorJSON(err)
	}
	if want == nil {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	wanted, fault := decodeJSON(want)
	if fault != nil {
		t.Fatal(fault)
	}
	if faults := differs(wanted, got); len(faults) > 0 {
		t.Errorf("%s: result%s\n%s (%v)", name, strings.Join(faults, "\nresult"), shown(got), err)
	} else if object, _ := wanted.(map[string]any); err != nil && object["error"] == nil {
		t.Errorf("%s: %v", name, err)
	}
}

func TestVectorsIDs(t *testing.T) {
	for _, v := range client.ReadVectors[struct {
		ID      *string `json:"id"`
		Token   string  `json:"token"`
		Decodes bool    `json:"decodes"` // only: the id has another token
		Refused bool    `json:"refused"`
	}](t, "pure/ids.json") {
		if v.ID != nil {
			id, err := schema.ParseDocumentID(*v.ID)
			if v.Refused != (err != nil) || err == nil && (id.Token() == v.Token) == v.Decodes {
				t.Errorf("%q: token %q, %v, want %q", *v.ID, id.Token(), err, v.Token)
			}
			if v.Refused {
				continue
			}
		}
		id, err := schema.DecodeID(v.Token)
		if v.Refused != (err != nil) || err == nil && string(id) != *v.ID {
			t.Errorf("token %q: %q, %v", v.Token, id, err)
		}
	}
}

// TestVectorsTimes: lengths and moments, as texts and as numbers.
func TestVectorsTimes(t *testing.T) {
	for _, v := range client.ReadVectors[struct {
		Length  json.RawMessage `json:"length"`
		Seconds int64           `json:"seconds"`
		Refused bool            `json:"refused"`
	}](t, "pure/lengths.json") {
		var l length
		err := json.Unmarshal(v.Length, &l)
		d := time.Duration(l)
		refused := err != nil || d%time.Second != 0 || d < 0
		if refused != v.Refused || !refused && d != time.Duration(v.Seconds)*time.Second {
			t.Errorf("length %s: %v, %v", v.Length, d, err)
		}
	}
	for _, v := range client.ReadVectors[struct {
		Moment  string `json:"moment"`
		Ms      int64  `json:"ms"`
		Refused bool   `json:"refused"`
	}](t, "pure/moments.json") {
		at, err := schema.ParseTime(v.Moment)
		if v.Refused != (err != nil) || err == nil && at.UnixMilli() != v.Ms {
			t.Errorf("moment %q: %d, %v", v.Moment, at.UnixMilli(), err)
		}
	}
}

// vectorServer is a stand-in that sends the reply of a vector to each request. Its client has
// the collection c.
type vectorServer struct {
	*standin
	*sdk
	reply func(*nats.Msg) *nats.Msg
	last  *nats.Msg // the request
}

func newVectorServer(t *testing.T) *vectorServer {
	s := &vectorServer{standin: newStandin(t)}
	s.subscribe("lapse.main.api.>", func(m *nats.Msg) {
		s.mu.Lock()
		s.last = m
		reply := s.reply(m)
		s.mu.Unlock()
		_ = m.RespondMsg(reply)
	})
	s.sdk = newSDK(s.client())
	s.answerWith(map[string]string{"Lapse-Status": "200"}, `{"id":"c","_ts":1,"_etag":"1"}`)
	var err error
	s.collections["c"], err = s.Client.Collection(t.Context(), "c")
	check(t, err)
	return s
}

func (s *vectorServer) answerWith(headers map[string]string, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.reply = nil, func(m *nats.Msg) *nats.Msg {
		r := nats.NewMsg(m.Reply)
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		r.Data = []byte(body)
		return r
	}
}

// request returns the last request in the form of the vectors, nil if there was none.
func (s *vectorServer) request(t *testing.T) any {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return nil
	}
	headers := make(map[string]any)
	for name := range s.last.Header {
		headers[name] = s.last.Header.Get(name)
	}
	request := map[string]any{"subject": strings.TrimPrefix(s.last.Subject, "lapse.main.api."), "headers": headers}
	if len(s.last.Data) > 0 {
		var err error
		if request["body"], err = decodeJSON(s.last.Data); err != nil {
			t.Fatal(err)
		}
	}
	return request
}

// TestVectorsReplies: a reply becomes a value or an error.
func TestVectorsReplies(t *testing.T) {
	s := newVectorServer(t)
	for _, v := range client.ReadVectors[struct {
		Name string `json:"name"`
		call
		Reply struct {
			Headers map[string]string `json:"headers"`
			Body    string            `json:"body"`
		} `json:"reply"`
		Want json.RawMessage `json:"want"`
	}](t, "pure/replies.json") {
		s.answerWith(v.Reply.Headers, v.Reply.Body)
		got, err := s.run(t.Context(), v.call)
		wantResult(t, v.Name, v.Want, got, err)
	}
}

// TestVectorsRequests: a call sends a request, or fails before.
func TestVectorsRequests(t *testing.T) {
	s := newVectorServer(t)
	for _, v := range client.ReadVectors[struct {
		Name string `json:"name"`
		call
		Request json.RawMessage `json:"request"`
		Want    json.RawMessage `json:"want"`
	}](t, "pure/requests.json") {
		s.answerWith(map[string]string{"Lapse-Status": "404"}, `{"code":404,"error":"document_not_found","message":"x"}`)
		got, err := s.run(t.Context(), v.call)
		if v.Want != nil {
			wantResult(t, v.Name, v.Want, got, err)
			continue
		}
		wantResult(t, v.Name, v.Request, s.request(t), nil)
	}
}

// TestVectorsEvents: a message of the log becomes an event.
func TestVectorsEvents(t *testing.T) {
	s := newStandin(t).log()
	c := newSDK(s.client())
	for i, v := range client.ReadVectors[struct {
		Name    string            `json:"name"`
		Subject string            `json:"subject"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
		Want    json.RawMessage   `json:"want"`
	}](t, "pure/events.json") {
		m := nats.NewMsg("lapse.main.events." + v.Subject)
		for name, value := range v.Headers {
			m.Header.Set(name, value)
		}
		m.Data = []byte(v.Body)
		must(t)(s.js.PublishMsg(t.Context(), m))
		got, err := c.run(t.Context(), call{Do: "changes", Args: []json.RawMessage{fmt.Appendf(nil, `{"from":%d,"until":"now"}`, i+1)}})
		wantResult(t, v.Name, v.Want, got, err)
	}
}

// TestVectorsConsumers: a durable creates a consumer, or uses an existing one.
func TestVectorsConsumers(t *testing.T) {
	s := newStandin(t).log()
	for second := int64(1); second <= 3; second++ {
		s.happen(schema.Event{Type: schema.DocumentCreated, Collection: "c", ID: "a", Time: 946684800000 + 1000*second, Body: []byte("{}")})
	}
	c := newSDK(s.client())
	for _, v := range client.ReadVectors[struct {
		Name     string          `json:"name"`
		Options  json.RawMessage `json:"options"`
		Existing json.RawMessage `json:"existing"`
		Consumer json.RawMessage `json:"consumer"`
		Pull     json.RawMessage `json:"pull"`
		Want     json.RawMessage `json:"want"`
	}](t, "pure/consumers.json") {
		var o struct {
			Durable string `json:"durable"`
			Until   any    `json:"until"`
		}
		check(t, json.Unmarshal(v.Options, &o))
		if v.Existing != nil {
			var config jetstream.ConsumerConfig
			check(t, json.Unmarshal(v.Existing, &config))
			must(t)(s.js.CreateConsumer(t.Context(), "LAPSE_main", config))
		}
		pulls, err := s.nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.*")
		if err == nil {
			err = s.nc.Flush()
		}
		check(t, err)
		_, err = c.run(t.Context(), call{Do: "changes", Args: []json.RawMessage{v.Options}})
		wantResult(t, v.Name, v.Want, nil, err)
		if v.Pull != nil {
			wantPull(t, v.Name, v.Pull, pulls)
		}
		_ = pulls.Unsubscribe()
		if v.Consumer != nil && err == nil {
			consumer, err := s.js.Consumer(t.Context(), "LAPSE_main", o.Durable)
			if err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
			got, err := plain(consumer.CachedInfo().Config, nil)
			config := got.(map[string]any)
			if filter := config["filter_subject"]; filter != nil {
				config["filter_subjects"] = []any{filter}
			} else if filters, ok := config["filter_subjects"].([]any); ok {
				slices.SortFunc(filters, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
			}
			wantResult(t, v.Name, v.Consumer, config, err)
		}
		if err := s.js.DeleteConsumer(t.Context(), "LAPSE_main", o.Durable); err != nil && v.Want == nil {
			t.Error(err)
		}
	}
}

// wantPull compares the first pull of a feed.
func wantPull(t *testing.T, name string, want json.RawMessage, pulls *nats.Subscription) {
	t.Helper()
	m, err := pulls.NextMsg(patience)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got, err := decodeJSON(m.Data)
	wantResult(t, name, want, got, err)
	var pull struct{ Expires time.Duration }
	if err := json.Unmarshal(m.Data, &pull); err != nil || pull.Expires <= 0 || pull.Expires > 5*time.Second/2 {
		t.Errorf("%s: a pull that ends after %v, %v", name, pull.Expires, err)
	}
}
