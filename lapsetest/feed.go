package lapsetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/schema"
)

// Seq returns the sequence of the last event of the log, 0 for none.
func (db *DB) Seq() (seq uint64) {
	db.t.Helper()
	db.use(func(l *offline.Local) error {
		if log := l.Log(); len(log) > 0 {
			seq = log[len(log)-1].Seq
		}
		return nil
	})
	return seq
}

// Events returns the events of the log from sequence from on, without internal ones, of
// the given types if there are any. The events are shared and must not be changed.
func (db *DB) Events(from uint64, types ...client.EventType) (events []*client.Event) {
	db.t.Helper()
	db.use(func(l *offline.Local) error {
		log := l.Log()
		first, _ := slices.BinarySearchFunc(log, from, func(e *schema.Event, from uint64) int { return cmp.Compare(e.Seq, from) })
		for _, e := range log[first:] {
			if !e.Type.Internal() && (len(types) == 0 || slices.Contains(types, e.Type)) {
				events = append(events, client.EventOf(e))
			}
		}
		return nil
	})
	return events
}

// Log returns the log as lapse export prints it, one event as JSON per line.
// The same calls give the same bytes.
func (db *DB) Log() string {
	db.t.Helper()
	return Lines(db.Events(0))
}

// Lines returns events as lapse export prints them.
func Lines(events []*client.Event) string {
	var b []byte
	for _, e := range events {
		b = append(e.Schema().AppendJSON(b), '\n')
	}
	return string(b)
}

// History returns the events of an id, newest first, including earlier documents with the
// id and each CollectionDeleted that ended one. It ends after 100 events.
func (db *DB) History(collection, id string) (events []*client.Event) {
	db.t.Helper()
	var page struct {
		Events []*client.Event `json:"events"`
		Cursor string          `json:"cursor"`
	}
	for more := true; more && len(events) < 100; more = page.Cursor != "" {
		reply, err := db.Do("history", collection, id, map[string]any{"limit": 100 - len(events), "cursor": page.Cursor})
		if coded, ok := err.(*client.Error); ok && coded.Code == 404 {
			return nil
		} else if err != nil {
			db.t.Fatalf("history %s %s: %v", collection, id, schema.Describe(err))
		}
		page.Cursor = ""
		db.into(&page, reply)
		events = append(events, page.Events...)
	}
	return events
}

// WantEvents fails the test unless the events from sequence from on match want: one JSON
// object per line with members of an event as lapse export prints them. Missing members
// match any value, also within body. An empty want matches no events.
//
//	db.WantEvents(seq+1, `
//		{"type":"DocumentExpired","id":"a","body":{"user":"x"}}
//		{"type":"DocumentCreated","id":"a"}`)
func (db *DB) WantEvents(from uint64, want string) {
	db.t.Helper()
	events := db.Events(from)
	lines := slices.DeleteFunc(strings.Split(want, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	for i, line := range lines {
		fault := ""
		if i >= len(events) {
			fault = "there is no such event"
		} else {
			fault = mismatch(line, events[i].Schema())
		}
		if fault != "" {
			db.t.Fatalf("event %d is not %s: %s\nfrom %d on there are:\n%s", i+1, strings.TrimSpace(line), fault, from, Lines(events))
		}
	}
	if len(events) > len(lines) {
		db.t.Fatalf("there are %d events more than wanted:\n%s", len(events)-len(lines), Lines(events[len(lines):]))
	}
}

// mismatch describes the difference of an event from the wanted one, "" for none.
func mismatch(want string, e *schema.Event) string {
	w, err := decode([]byte(want))
	if err != nil {
		return fmt.Sprintf("what is wanted is not JSON: %v", err)
	}
	got, err := decode(e.AppendJSON(nil))
	if err != nil {
		return err.Error()
	}
	return differ("", w, got)
}

// decode reads JSON with numbers as they are written: 1.0 and 1 differ.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v)
}

// differ describes the first value of want that got lacks, with its path, "" for none.
// Objects may have more members than wanted, at any depth; everything else has to be equal.
//
//	want {"body":{"n":1}}   got {"id":"a","body":{"n":2,"m":3}}   →   body.n is 2
func differ(path string, want, got any) string {
	members, ok := want.(map[string]any)
	has, both := got.(map[string]any)
	if !ok || !both {
		if reflect.DeepEqual(want, got) {
			return ""
		}
		text, _ := json.Marshal(got)
		return fmt.Sprintf("%s is %s", strings.TrimPrefix(path, "."), text)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value, ok := has[name]
		if !ok {
			return fmt.Sprintf("it has no %s", strings.TrimPrefix(path+"."+name, "."))
		}
		if fault := differ(path+"."+name, members[name], value); fault != "" {
			return fault
		}
	}
	return ""
}
