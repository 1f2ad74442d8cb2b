// Package migrate tests docs/migrate.md and its scripts, with Redis and NATS. It needs
// redis-server and jq.
package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

var check = harness.Check

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const root = "../../.."

// patience bounds each wait.
const patience = 30 * time.Second

// workshop is a directory with the scripts and commands of the page, as a user has them.
type workshop struct {
	t   *testing.T
	dir string
}

func newWorkshop(t *testing.T, tools ...string) *workshop {
	t.Helper()
	for _, tool := range append(tools, "jq") {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") == "" {
			t.Skipf("%s is not installed", tool)
		}
	}
	w := &workshop{t, t.TempDir()}
	check(t, os.CopyFS(filepath.Join(w.dir, "docs/migrate"), os.DirFS(filepath.Join(root, "docs/migrate"))))
	return w
}

// command makes a command of that name.
func (w *workshop) command(name, script string) {
	w.t.Helper()
	path := filepath.Join(w.dir, "bin", name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700)
	}
	check(w.t, err)
}

// TestItemsOfCosmosDB: what docs/cosmos.md does before an import gives documents the ids of items.
func TestItemsOfCosmosDB(t *testing.T) {
	w := newWorkshop(t)
	page, err := os.ReadFile(filepath.Join(root, "docs/cosmos.md"))
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, "carts.jsonl"), []byte(`{"id":"7","customerId":"ann"}`+"\n"+`{"id":"a:b/ü","customerId":"C%3A~1"}`), 0o600)
	}
	check(t, err)
	command := regexp.MustCompile(`(?m)^ +(jq .*)$`).FindSubmatch(page)
	if command == nil {
		t.Fatal("the page has no jq")
	}
	_, stderr, err := w.run(string(command[1]))
	out, _ := os.ReadFile(filepath.Join(w.dir, "orders.jsonl"))
	if want := `{"id":"ann:7","customerId":"ann"}` + "\n" + `{"id":"C%253A%7E1:a%3Ab/ü","customerId":"C%3A~1"}` + "\n"; err != nil || string(out) != want {
		t.Errorf("%s, want %s: %s, %v", out, want, stderr, err)
	}
}

// run runs commands of the page, and returns what they print.
func (w *workshop) run(commands string) (stdout, stderr string, err error) {
	cmd := child.CommandContext(w.t.Context(), w.t, "sh", "-e", "-c", commands)
	cmd.Dir, cmd.Env = w.dir, append(cmd.Env, "PATH="+filepath.Join(w.dir, "bin")+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+w.dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func (w *workshop) lapse() *harness.Server {
	s := harness.Serve(w.t, "--durability", "os")
	w.command("lapse", fmt.Sprintf(`NATS_URL=%s exec %s "$@"`, s.URL(), harness.Command(w.t).Path))
	return s
}

// redis starts Redis, and fills it with commands.
func (w *workshop) redis(commands string) {
	w.t.Helper()
	_, port, _ := net.SplitHostPort(harness.FreeAddr(w.t))
	redis := child.Command(w.t, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", w.dir)
	check(w.t, redis.Start())
	w.t.Cleanup(func() { _ = redis.Process.Kill(); _ = redis.Wait() })
	cli, err := exec.LookPath("redis-cli")
	check(w.t, err)
	w.command("redis-cli", fmt.Sprintf(`exec %s -p %s "$@"`, cli, port))
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		out, _, _ := w.run("redis-cli PING")
		if strings.TrimSpace(out) == "PONG" {
			break
		} else if time.Now().After(end) {
			w.t.Fatal(out)
		}
	}
	if out, stderr, err := w.run("redis-cli <<'end'\n" + commands + "\nend"); err != nil || strings.Contains(out, "ERR") {
		w.t.Fatal(err, out, stderr)
	}
}

// buckets starts a NATS server with JetStream, and the nats command for it.
func (w *workshop) buckets() jetstream.JetStream {
	w.t.Helper()
	binary := filepath.Join(w.dir, "nats")
	if out, err := child.Tool(w.t.Context(), "go", "-C", filepath.Join("..", "nats"), "build", "-o", binary, "github.com/nats-io/natscli/nats").CombinedOutput(); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	ns := harness.StartNATS(w.t, &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(w.dir, "js"), NoSigs: true, NoLog: true})
	w.command("nats", fmt.Sprintf(`exec %s --server %s "$@"`, binary, ns.ClientURL()))
	nc, err := nats.Connect(ns.ClientURL())
	check(w.t, err)
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	check(w.t, err)
	return js
}

var (
	section    = regexp.MustCompile(`(?m)^## (.*)$`)
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")
)

// TestPage: the commands of each section print what the page says, where an ellipsis stands
// for any text. Of the tools of other databases there are stand-ins, which copy a file in
// their documented format.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/migrate.md"))
	check(t, err)
	testdata, err := filepath.Abs("testdata")
	check(t, err)
	soon := time.Now().UnixMilli()
	prepare := map[string]func(*workshop){
		"Redis": func(w *workshop) { w.redis(`SET cart:7 '{"items":["pen"]}' EX 1000` + "\nSET other 1") },
		"connect-redis": func(w *workshop) {
			w.redis(`SET sess:Zx-7 '{"cookie":{"originalMaxAge":null,"httpOnly":true,"path":"/"},"user":"ann"}' EX 86400`)
		},
		"spring-session": func(w *workshop) {
			const key = "spring:session:sessions:33fdd1b6-b496-4b33-9f7d-df96679d32f"
			w.redis(fmt.Sprintf("HSET %[1]se creationTime %[2]d lastAccessedTime %[2]d maxInactiveInterval 1800 sessionAttr:cart '{\"items\":[\"pen\"]}'\n"+
				"HSET %[1]sf creationTime 1 lastAccessedTime 1 maxInactiveInterval 1800\nHSET spring:session:sessions:expires:x a b", key, soon))
		},
		"NATS KV": func(w *workshop) {
			kv, err := w.buckets().CreateKeyValue(w.t.Context(), jetstream.KeyValueConfig{Bucket: "carts", TTL: time.Hour})
			if err == nil {
				_, err = kv.PutString(w.t.Context(), "cart.7", `{"items":["pen"]}`)
			}
			check(w.t, err)
		},
		"Cosmos DB": func(w *workshop) { w.command("dmt", "cp "+testdata+"/cosmos.json carts.json") },
		"DynamoDB": func(w *workshop) {
			w.command("aws", `[ "$1" = dynamodb ] || { mkdir data; gzip -c `+testdata+`/dynamodb.json > data/a.json.gz; }`)
		},
		"MongoDB": func(w *workshop) {
			w.command("mongoexport", "cp "+testdata+"/mongodb.json export.json")
		},
	}
	at := section.FindAllSubmatchIndex(page, -1)
	for i, m := range at {
		name, end := string(page[m[2]:m[3]]), len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		text := string(page[m[1]:end])
		if name == "Redis" { // goes on from the introduction
			text = string(page[:end])
		}
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t, "redis-server")
			w.lapse()
			prepare[name](w)
			blocks := shellBlock.FindAllStringSubmatch(text, -1)
			if len(blocks) == 0 {
				t.Fatal("it has no commands")
			}
			for _, block := range blocks {
				stdout, stderr, err := w.run(block[1])
				want := strings.ReplaceAll(regexp.QuoteMeta(block[2]), "…", ".*")
				if err != nil || !regexp.MustCompile("(?s)^"+want+"$").MatchString(stdout) {
					t.Fatalf("%s\nprints (%v)\n%s%s\nand the page says\n%s", block[1], err, stdout, stderr, block[2])
				}
			}
		})
	}
	if len(at) != len(prepare) {
		t.Errorf("%d sections, %d are tested", len(at), len(prepare))
	}
}

// dumped is a line of a script.
type dumped struct {
	ID       string          `json:"id"`
	Value    json.RawMessage `json:"value"`
	ExpireAt json.RawMessage `json:"expireAt"`
}

// lines returns the lines that a script prints as id and value, and the deadlines in ms, 0
// for none.
func lines(t *testing.T, text string) (all []string, ends map[string]int64) {
	t.Helper()
	ends = make(map[string]int64)
	for _, line := range harness.Lines(text) {
		var d dumped
		err := json.Unmarshal([]byte(line), &d)
		var end *int64
		if err == nil {
			err = json.Unmarshal(d.ExpireAt, &end)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, d.ID+" "+string(d.Value))
		if ends[d.ID] = 0; end != nil {
			ends[d.ID] = *end
		}
	}
	slices.Sort(all)
	return all, ends
}

// TestRedis: keys and values come over as they are, with the end that Redis knows; what
// cannot is named, and nothing is lost in silence.
func TestRedis(t *testing.T) {
	w := newWorkshop(t, "redis-server")
	s := w.lapse()
	w.redis(strings.Join([]string{
		`SET plain hello`, `SET "a b:c" '{"n":1}' EX 500`, `SET "line\nend" '[1]' PX 600500`, `SET "quote\"d" "\"x\""`,
		`SET number 12345678901234567890`, `SET broken '{"n":'`, `SET empty ""`, `SET ünï "ü"`, `HSET hash f 1 g '{"x":2}'`,
		`SET gone x PX 1`, `RPUSH list a`, `SET "bin\xff" x`, `SET value "\xff"`,
	}, "\n"))
	stdout, stderr, err := w.run("sleep 0.01; sh docs/migrate/redis.sh > dump.jsonl || echo exit $?; cat dump.jsonl")
	if stdout = strings.TrimPrefix(stdout, "exit 1\n"); err != nil {
		t.Fatal(err, stderr)
	}
	got, ends := lines(t, stdout)
	want := []string{"a b:c {\"n\":1}", `broken "{\"n\":"`, `empty ""`, `hash {"f":"1","g":{"x":2}}`, "line\nend [1]", `number "12345678901234567890"`, `plain "hello"`, `quote"d "\"x\""`, `ünï "ü"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := strings.Count(stderr, " is left out: "); n != 3 || !strings.Contains(stderr, `"list" is left out: neither string nor hash`) {
		t.Errorf("it says\n%s", stderr)
	}
	if _, stderr, err := w.run("lapse collection create keys --default-ttl -1; lapse import keys dump.jsonl --expires /expireAt --drop /expireAt || true"); err != nil {
		t.Fatal(err, stderr)
	} else if !strings.Contains(stderr, "control character") || !strings.Contains(stderr, "1 of 9 lines refused") {
		t.Errorf("it says\n%s", stderr)
	}
	for _, key := range []string{"a b:c", "plain"} {
		var doc struct {
			Deadline *int64 `json:"_deadline"`
		}
		out := s.Run("query", "keys", "--deadlines", "--json", "--where", "doc.id == params.id", "--param", "id="+key).OK()
		theirs, _, err := w.run(fmt.Sprintf("redis-cli PEXPIRETIME %q", key))
		var ms int64
		if _, scan := fmt.Sscan(theirs, &ms); err != nil || scan != nil || json.Unmarshal([]byte(out), &doc) != nil {
			t.Fatal(out, theirs, err)
		}
		if ms < 0 && doc.Deadline != nil || ms > 0 && (doc.Deadline == nil || *doc.Deadline*1000-ms >= 1100 || *doc.Deadline*1000 < ms-100 || ends[key]-ms > 100) {
			t.Errorf("%s ends at %s, Redis says %d", key, out, ms)
		}
	}
}

// TestMongoDBPath: the field of a TTL index may be in a subdocument, or an array, whose earliest
// date counts. A document without a date there never ends.
func TestMongoDBPath(t *testing.T) {
	w := newWorkshop(t)
	for _, c := range []struct{ path, document, end string }{
		{"seen", `{"seen":{"$date":{"$numberLong":"5000"}}}`, "65000"},
		{"meta.seen", `{"meta":{"seen":{"$date":{"$numberLong":"5000"}}}}`, "65000"},
		{"meta.seen", `{"meta":{"seen":[{"$date":{"$numberLong":"9000"}},{"$date":{"$numberLong":"5000"}}]}}`, "65000"},
		{"a.b.c", `{"a":[{"b":{"c":{"$date":{"$numberLong":"9000"}}}},{"b":{"c":{"$date":{"$numberLong":"5000"}}}},{"b":1}]}`, "65000"},
		{"meta.seen", `{"meta":{"seen":"2060-01-01"}}`, "null"},
		{"meta.seen", `{"meta":7}`, "null"},
		{"meta.seen", `{"seen":{"$date":{"$numberLong":"5000"}}}`, "null"},
	} {
		got, stderr, err := w.run(fmt.Sprintf("echo '%s' | jq -c -f docs/migrate/mongodb.jq --arg date %s --argjson after 60 | jq .end", c.document, c.path))
		if err != nil || strings.TrimSpace(got) != c.end {
			t.Errorf("%s in %s: %s, want %s (%v) %s", c.path, c.document, got, c.end, err, stderr)
		}
	}
}

// TestCosmosWithoutMetadata: an export without _ts has no moments: the recipe stops.
func TestCosmosWithoutMetadata(t *testing.T) {
	w := newWorkshop(t)
	page, err := os.ReadFile(filepath.Join(root, "docs/migrate.md"))
	check(t, err)
	recipe := regexp.MustCompile(`(?s)jq -cn --stream.*? carts\.json `).FindString(string(page))
	stdout, stderr, err := w.run(`echo '[{"id":"a","ttl":5}]' >carts.json` + "\n" + recipe)
	if recipe == "" || err == nil || stdout != "" || !strings.Contains(stderr, "IncludeMetadataFields") {
		t.Errorf("%q prints %s%s, %v", recipe, stdout, stderr, err)
	}
}

// TestNATSKV: the end of a key is its own or that of the bucket, whichever is first; deleted
// keys are left out.
func TestNATSKV(t *testing.T) {
	w := newWorkshop(t, "redis-server")
	js := w.buckets()
	ctx := t.Context()
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b", TTL: time.Hour, LimitMarkerTTL: time.Minute, History: 3})
	check(t, err)
	began := time.Now().UnixMilli()
	for _, do := range []func() error{
		func() error {
			_, err := kv.Create(ctx, "short", []byte(`{"n":1}`), jetstream.KeyTTL(time.Minute))
			return err
		},
		func() error {
			_, err := kv.Create(ctx, "long", []byte("text"), jetstream.KeyTTL(100*time.Hour))
			return err
		},
		func() error { _, err := kv.PutString(ctx, "a.b", "old"); return err },
		func() error { _, err := kv.PutString(ctx, "a.b", "[1]"); return err },
		func() error { _, err := kv.PutString(ctx, "deleted", "x"); return err },
		func() error { return kv.Delete(ctx, "deleted") },
		func() error { _, err := kv.Put(ctx, "binary", []byte{0xff}); return err },
	} {
		check(t, do())
	}
	ended := time.Now().UnixMilli()
	stdout, stderr, err := w.run("sh docs/migrate/nats-kv.sh b || echo exit $?")
	if !strings.HasSuffix(stdout, "exit 1\n") || !strings.Contains(stderr, "binary is left out") || err != nil {
		t.Errorf("it prints %s and says %s (%v)", stdout, stderr, err)
	}
	got, ends := lines(t, strings.TrimSuffix(stdout, "exit 1\n"))
	if want := []string{"a.b [1]", `long "text"`, `short {"n":1}`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for key, ttl := range map[string]time.Duration{"short": time.Minute, "long": time.Hour, "a.b": time.Hour} {
		if end := ends[key] - ttl.Milliseconds(); end < began-1 || end > ended+1 {
			t.Errorf("%s ends %d ms after its beginning, want %s", key, ends[key]-began, ttl)
		}
	}
}
