package test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
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
	watch := s.Follow("watch", "--json", "--since", "1h")
	for _, line := range harness.Lines(all) {
		if got := watch.Line(); got != line {
			t.Errorf("a watch shows %s, want %s", got, line)
		}
	}
	watch.Interrupt().OK()
}

// TestUsage: wrong usage prints one line that says why and exits with 2; what is missing
// or taken prints one line and exits with 1. More is in cmd/lapse/testdata/commands.
func TestUsage(t *testing.T) {
	t.Parallel()
	taken := harness.Serve(t, "--durability", "os")
	type row struct {
		args string
		code int
		says string
	}
	rows := []row{
		{"frobnicate", 2, "there is no `lapse frobnicate`"},
		{"document get orders a --server nats://127.0.0.1:1", 1, "no NATS server answers"},
		{"watch --server nats://127.0.0.1:1", 1, "no NATS server answers"},
		{"export --server nats://127.0.0.1:1", 1, "no NATS server answers"},
		{"serve extra", 2, "1 argument(s) given"},
		{"serve --database NO", 2, "--database"},
		{"serve --store-dir", 2, "--store-dir"},
		{"serve --lateness-objective 0s", 2, "--lateness-objective"},
		{"serve --max-downtime 0", 2, "--max-downtime"},
		{"history orders a --limit many", 2, "--limit"},
		{"export --until whenever", 2, "--until"},
		{"simulate a b", 2, "2 argument(s) given"},
		{"simulate --until yesterday", 2, "--until"},
		{"simulate no-such-file", 1, "no-such-file"},
		{"serve --store-dir /dev/null/data", 1, "/dev/null/data"},

		{"serve --nats-url nats://127.0.0.1:1 --context x", 2, "--nats-url and --context given"},
		{"serve --nats-url nats://127.0.0.1:1 --tls-cert x", 2, "--tls-cert and --tls-key go together"},
		{"serve --nats-url=", 2, "--nats-url is empty"},
		{"serve --nats-url nats://127.0.0.1:1 --replicas 2", 2, `--replicas "2": use 1 or 3`},
		{"serve --replicas 3", 2, "--replicas 3: the embedded NATS server is one"},

		{"serve --log-format yaml", 2, `--log-format "yaml": use text or json`},
		{"serve --metrics 9090", 2, `--metrics "9090": use HOST:PORT, like 127.0.0.1:9090`},
		{"serve --metrics localhost:http", 2, `--metrics "localhost:http": use HOST:PORT`},
		{"serve --debug", 2, "--debug without --metrics"},
		{"serve --metrics " + taken.Addr + " --store-dir " + t.TempDir(), 1, "cannot serve metrics at " + taken.Addr + ": another program listens there"},
		{"status 5s", 2, "1 argument(s) given"},
		{"status --of here", 2, `--of "here": use HOST:PORT`},
		{"status --of 127.0.0.1:1 --all", 2, "--of and --all given: use one of them"},
		{"status --of 127.0.0.1:1 --server nats://x", 2, "--of and --server given: use one of them"},
		{"status --of 127.0.0.1:1 --nkey x.nk", 2, "--of and --nkey given: use one of them"},
		{"status --of 127.0.0.1:1", 1, "no lapse answers at 127.0.0.1:1"},
		{"status --of " + taken.Addr, 1, "at " + taken.Addr},
		{"status --all --database other --server " + taken.URL(), 1, `no process serves database "other" here`},
	}
	for _, flag := range []string{"time", "scanned", "bytes"} {
		for _, value := range []string{"0", "-1", "x"} {
			rows = append(rows, row{"serve --query-" + flag + "=" + value, 2, "--query-" + flag})
		}
	}
	for _, row := range rows {
		r := harness.Run(t, nil, strings.Fields(row.args)...).Exits(row.code)
		if !strings.Contains(r.Stderr, row.says) || strings.Contains(r.Stderr, "ready") {
			t.Errorf("lapse %s says %s", row.args, r.Stderr)
		}
	}
	for _, args := range []string{"", "--help", "--version", "serve --help", "document upsert --help"} {
		if out := harness.Run(t, nil, strings.Fields(args)...).OK(); out == "" {
			t.Errorf("lapse %s prints nothing", args)
		}
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
