package test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/harness"
)

// TestEveryCommand runs every command once against a server.
func TestEveryCommand(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	object := func(text string) map[string]any {
		t.Helper()
		var o map[string]any
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return o
	}
	wantMembers := func(text string, members map[string]any) map[string]any {
		t.Helper()
		o := object(text)
		for name, want := range members {
			if got := o[name]; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %s is %v, want %v", text, name, got, want)
			}
		}
		return o
	}

	// Collections.
	wantMembers(s.Run("collection", "create", "orders", `{"defaultTtl":3600}`).OK(), map[string]any{"id": "orders", "defaultTtl": 3600})
	s.Run("collection", "create", "sessions").OK()
	refusal(t, s.Run("collection", "create", "orders"), "collection_exists")
	wantMembers(s.Run("collection", "get", "orders").OK(), map[string]any{"id": "orders", "documents": 0, "bytes": 0})
	wantMembers(s.RunInput(`{"defaultTtl":-1}`, "collection", "replace", "orders", "-").OK(), map[string]any{"defaultTtl": -1})
	if list := s.Run("collection", "list").OK(); !strings.Contains(list, `"orders"`) || !strings.Contains(list, `"sessions"`) {
		t.Errorf("the list is %s", list)
	}
	s.Run("collection", "delete", "sessions").OK()
	refusal(t, s.Run("collection", "get", "sessions"), "collection_not_found")
	refusal(t, s.Run("collection", "create", "bad", `{"defaultTtl":0}`), "bad_ttl")

	// Documents.
	created := wantMembers(s.Run("document", "create", "orders", "a b.*", `{"total":5}`).OK(), map[string]any{"id": "a b.*", "total": 5})
	if _, ok := created["_ts"].(float64); !ok {
		t.Errorf("no _ts: %v", created)
	}
	etag := fmt.Sprint(created["_etag"])
	refusal(t, s.Run("document", "create", "orders", "a b.*", `{}`), "document_exists")
	wantMembers(s.Run("document", "get", "orders", "a b.*").OK(), map[string]any{"total": 5, "_etag": etag})
	refusal(t, s.Run("document", "replace", "orders", "a b.*", `{}`, "--if-match", "1"), "precondition_failed")
	wantMembers(s.Run("document", "replace", "orders", "a b.*", `{"total":6}`, "--if-match", etag).OK(), map[string]any{"total": 6})
	wantMembers(s.RunInput(`{"total":7}`, "document", "upsert", "orders", "a b.*", "-").OK(), map[string]any{"total": 7})
	s.Run("document", "upsert", "orders", "gone", `{}`).OK()
	if out := s.Run("document", "delete", "orders", "gone").OK(); out != "" {
		t.Errorf("delete printed %q", out)
	}
	refusal(t, s.Run("document", "delete", "orders", "gone"), "document_not_found")
	refusal(t, s.Run("document", "upsert", "orders", "x", "poison"), "bad_request")
	refusal(t, s.Run("document", "upsert", "orders", "x", `{"ttl":0}`), "bad_ttl")
	refusal(t, s.Run("document", "upsert", "-", "x", `{}`), "bad_request")
	refusal(t, s.Run("document", "get", "orders", strings.Repeat("x", 256)), "bad_id")

	// A document expires, and its history stays.
	wantMembers(s.Run("document", "patch", "orders", "a b.*", `{"ttl":1}`).OK(), map[string]any{"total": 7, "ttl": 1})
	eventually(t, "the document expired", func() bool {
		return s.Run("document", "get", "orders", "a b.*").Code == 1 && strings.Contains(s.Run("history", "orders", "a b.*").OK(), "DocumentExpired")
	})
	history := parseEvents(t, s.Run("history", "orders", "a b.*").OK())
	if got := typesOf(history); got != "DocumentExpired DocumentReplaced DocumentReplaced DocumentReplaced DocumentCreated" {
		t.Errorf("the history is %s", got)
	}
	if got := typesOf(parseEvents(t, s.Run("history", "orders", "a b.*", "--limit", "2").OK())); got != "DocumentExpired DocumentReplaced" {
		t.Errorf("the last two are %s", got)
	}
	refusal(t, s.Run("history", "orders", "never"), "document_not_found")
	wantMembers(s.Run("status").OK(), map[string]any{"database": "main", "role": "writer", "documents": 0, "overdue": 0, "mutationsBehind": 0})

	wantMembers(s.Run("forecast", "orders", "--next", "1h").OK(), map[string]any{"collection": "orders", "defaultTtl": -1, "documents": 0, "due": 0})
	refusal(t, s.Run("forecast", "orders", "--bucket", "1s"), "bad_request")

	// The log.
	all := s.Run("export").OK()
	events := parseEvents(t, all)
	checkLog(t, events)
	if got := typesOf(events); got != "CollectionCreated CollectionCreated CollectionReplaced CollectionDeleted DocumentCreated DocumentReplaced DocumentReplaced DocumentCreated DocumentDeleted DocumentReplaced DocumentExpired" {
		t.Errorf("the log is %s", got)
	}
	fifth := events[4]
	head := strings.Join(harness.Lines(all)[:5], "\n") + "\n"
	if got := s.Run("export", "--until", strconv.FormatUint(fifth.Seq, 10)).OK(); got != head {
		t.Errorf("until %d the log is\n%s", fifth.Seq, got)
	}
	if got := s.Run("export", "--until", fifth.Time.Format(time.RFC3339Nano)).OK(); !strings.HasPrefix(got, head) {
		t.Errorf("until %s the log is\n%s", fifth.Time, got)
	}
	if again := s.Run("export").OK(); again != all {
		t.Error("a second export gave other bytes")
	}
}

// refusal checks that a command ended with 1 and one line that names the error.
func refusal(t testing.TB, r harness.Result, name string) {
	t.Helper()
	if r.Exits(1); !strings.Contains(r.Stderr, name) || r.Stdout != "" {
		t.Errorf("it says %q and prints %q, want %s", r.Stderr, r.Stdout, name)
	}
}

func typesOf(events []event) string {
	var types []string
	for _, e := range events {
		types = append(types, e.Type)
	}
	return strings.Join(types, " ")
}

// TestWatch: a watch shows events from now or from any point on, survives a restart of
// the server, and ends by Ctrl-C with 0.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	s.Run("collection", "create", "orders", `{"defaultTtl":-1}`).OK()
	s.Run("collection", "create", "others").OK()
	s.Run("document", "create", "orders", "a", `{"ttl":1}`).OK()

	read := func(f *harness.Follower) event {
		t.Helper()
		return parseEvents(t, f.Line()+"\n")[0]
	}
	all := s.Follow("watch", "--json", "--since", "1")
	for _, want := range []string{"CollectionCreated", "CollectionCreated", "DocumentCreated", "DocumentExpired"} {
		if e := read(all); e.Type != want {
			t.Fatalf("the watch shows %+v, want %s", e, want)
		}
	}
	expiries := s.Follow("watch", "--json", "--since", "1", "--type", "DocumentExpired")
	expired := read(expiries)
	if expired.Type != "DocumentExpired" || expired.ID != "a" || expired.Time.Unix() < expired.Deadline {
		t.Fatalf("the watch shows %+v", expired)
	}
	since := s.Follow("watch", "--json", "--since", expired.Time.Format(time.RFC3339Nano))
	if e := read(since); e.Seq != expired.Seq {
		t.Errorf("since %s the watch shows %+v", expired.Time, e)
	}
	ago := s.Follow("watch", "--json", "--since", "1h", "--collection", "others")
	if e := read(ago); e.Collection != "others" {
		t.Errorf("of others the watch shows %+v", e)
	}
	people := s.Follow("watch", "--since", strconv.FormatUint(expired.Seq, 10))
	if line := people.Line(); !strings.Contains(line, "DocumentExpired") {
		t.Errorf("for people the watch shows %q", line)
	}

	s.Kill()
	s.Restart()
	s.Run("document", "create", "others", "b", `{}`).OK()
	for _, f := range []*harness.Follower{all, since, ago, people} {
		if line := f.Line(); !strings.Contains(line, "DocumentCreated") {
			t.Errorf("after a restart a watch shows %q", line)
		}
	}
	for _, f := range []*harness.Follower{all, expiries, since, ago, people} {
		if rest := f.Interrupt().OK(); rest != "" {
			t.Errorf("a watch shows more: %s", rest)
		}
	}
}

// TestUsage: wrong usage prints one line and exits with 2; a missing server or file
// prints one line and exits with 1.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"frobnicate",
		"serve --frobnicate",
		"serve extra",
		"serve --database NO",
		"serve --durability maybe",
		"serve --store-dir",
		"serve --lateness-objective 0s",
		"serve --lateness-objective soon",
		"serve --max-clock-step 0s",
		"serve --max-clock-step 999ms",
		"serve --max-clock-step -1m",
		"serve --max-clock-step 60",
		"serve --max-downtime 0",
		"serve --accept-clock=maybe",
		"collection",
		"collection frobnicate",
		"collection create",
		"collection get",
		"collection delete a b",
		"document",
		"document get orders",
		"document delete orders",
		"document upsert orders",
		"document upsert orders a {} {}",
		"history orders",
		"history orders a --limit many",
		"status extra",
		"watch extra",
		"watch --type Nonsense",
		"watch --since whenever",
		"export --until whenever",
		"simulate a b",
		"replay",
		"replay - --until whenever",
		"replay - --get orders",
		"replay - {}",
		"audit a b",
	} {
		t.Run(args, func(t *testing.T) {
			harness.Run(t, nil, strings.Fields(args)...).Exits(2)
		})
	}
	for _, args := range []string{
		"serve --store-dir /dev/null/data",
		"status --server nats://127.0.0.1:1",
		"document get orders a --server nats://127.0.0.1:1",
		"watch --server nats://127.0.0.1:1",
		"export --server nats://127.0.0.1:1",
		"simulate no-such-file",
		"replay no-such-file",
		"audit no-such-file",
		"audit --server nats://127.0.0.1:1",
	} {
		t.Run(args, func(t *testing.T) {
			harness.Run(t, nil, strings.Fields(args)...).Exits(1)
		})
	}
	for _, args := range []string{"", "--help", "--version", "serve --help", "document upsert --help"} {
		if out := harness.Run(t, nil, strings.Fields(args)...).OK(); out == "" {
			t.Errorf("lapse %s prints nothing", args)
		}
	}
}

// TestDatabaseFlag: a server serves the database that --database names, and no other.
func TestDatabaseFlag(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--database", "shop-2")
	s.Run("collection", "create", "c", "--database", "shop-2").OK()
	if out := s.Run("status", "--database", "shop-2").OK(); !strings.Contains(out, `"shop-2"`) {
		t.Errorf("the status is %s", out)
	}
	s.Run("status").Exits(1)
}

// TestCollectionReplaceFlags: a flag of `collection replace` changes its property and no other,
// also while other commands change theirs.
func TestCollectionReplaceFlags(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	const properties = `{"defaultTtl":3600,"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/a"},{"path":"/b"}]},"previousImages":false}`
	changes := []struct{ flag, member, changed string }{
		{"--default-ttl=5", `"defaultTtl":3600`, `"defaultTtl":5`},
		{"--default-ttl=off", `"defaultTtl":3600`, `"defaultTtl":null`},
		{"--indexing-mode=consistent", `"indexingMode":"lazy"`, `"indexingMode":"consistent"`},
		{"--include-path=/c", `[{"path":"/a"},{"path":"/b"}]`, `[{"path":"/c"}]`},
		{"--include-path=none", `[{"path":"/a"},{"path":"/b"}]`, `[]`},
		{"--previous-images", `"previousImages":false`, `"previousImages":true`},
	}
	for i, change := range changes {
		name := fmt.Sprint("c", i)
		s.Run("collection", "create", name, properties).OK()
		got := s.Run("collection", "replace", name, change.flag).OK()
		if want := strings.Replace(properties, change.member, change.changed, 1); !strings.HasPrefix(got, fmt.Sprintf(`{"id":%q,%s,"_ts":`, name, want[1:len(want)-1])) {
			t.Errorf("%s: got %s, want %s", change.flag, got, want)
		}
	}

	s.Run("collection", "create", "all", properties).OK()
	want := properties
	var running sync.WaitGroup
	for _, i := range []int{0, 2, 3, 5} {
		want = strings.Replace(want, changes[i].member, changes[i].changed, 1)
		running.Go(func() {
			if r := s.Run("collection", "replace", "all", changes[i].flag); r.Code != 0 {
				t.Errorf("%s: %+v", changes[i].flag, r)
			}
		})
	}
	running.Wait()
	if got := s.Run("collection", "get", "all").OK(); !strings.HasPrefix(got, `{"id":"all",`+want[1:len(want)-1]) {
		t.Errorf("got %s, want %s", got, want)
	}
}
