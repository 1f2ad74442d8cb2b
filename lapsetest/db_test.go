package lapsetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/lapsetest"
	"github.com/lapsedb/lapse/test/stress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryCall calls each method at least once.
func TestEveryCall(t *testing.T) {
	t.Parallel()
	db := lapsetest.New(t, lapsetest.AtTime(time.UnixMilli(1_767_225_600_250)))
	want := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	want("the time", db.Now().Format(time.RFC3339Nano), "2026-01-01T00:00:00.25Z")
	want("the first sequence", db.Seq(), 0)

	info := db.CreateCollection("orders", lapsetest.Properties(client.DefaultTTL(time.Minute), client.IncludePaths("/total")))
	want("the default", info.DefaultTTL, 60)
	db.CreateCollection("others", "")
	info = db.ReplaceCollection("others", `{"defaultTtl":-1}`)
	want("the new default", info.DefaultTTL, client.NoDefault)
	want("the collections", len(db.Collections()), 2)

	d := db.Create("orders", "a b.*", map[string]any{"total": 5, "text": "<&>"})
	want("the document", string(d.Value), `{"id":"a b.*","text":"<&>","total":5,"_ts":1767225600,"_etag":"4"}`)
	want("it was made", d.Created, true)
	d = db.Upsert("orders", "a b.*", json.RawMessage(`{"total":6}`), client.IfMatch(d.ETag))
	want("it was replaced", d.Created, false)
	d = db.Replace("orders", "a b.*", []byte(`{"total":7}`))
	d = db.Patch("orders", "a b.*", `{"total":8}`, client.MsgID("once"))
	want("the same again", db.Patch("orders", "a b.*", `{"total":9}`, client.MsgID("once")).ETag, d.ETag)
	got, ok := db.Document("orders", "a b.*")
	want("the document", fmt.Sprint(string(got.Value), ok), `{"id":"a b.*","total":8,"_ts":1767225600,"_etag":"7"}true`)
	info, ok = db.Collection("orders")
	want("the collection", fmt.Sprint(info.Documents, ok), "1 true")

	results := db.Batch("orders", `{"operations":[{"op":"create","id":"b","body":{"total":1}},{"op":"get","id":"none"},{"op":"delete","id":"a b.*"}]}`)
	want("the codes", fmt.Sprint(results[0].Code, results[1].Code, results[2].Code), "201 404 204")
	if !errors.Is(results[1].Err, client.ErrDocumentNotFound) || results[0].Err != nil {
		t.Errorf("the results are %+v", results)
	}
	results = db.Batch("orders", `{"operations":[{"op":"upsert","id":"c","body":{}},{"op":"delete","id":"none"}],"atomic":true}`)
	if !errors.Is(results[0].Err, client.ErrFailedDependency) || !errors.Is(results.Err(), client.ErrDocumentNotFound) {
		t.Errorf("the results are %+v", results)
	}
	db.Delete("orders", "b")
	if _, ok := db.Document("orders", "b"); ok {
		t.Error("what was deleted lives")
	}
	if _, ok := db.Document("none", "b"); ok {
		t.Error("a document lives in a collection that is not there")
	}
	want("the history", len(db.History("orders", "b")), 2)
	want("no history", len(db.History("orders", "never")), 0)
	want("the deletions", len(db.Events(0, client.DocumentDeleted)), 2)

	for i := range 3 {
		db.Create("orders", fmt.Sprint(i), fmt.Sprintf(`{"total":%d,"ttl":%d}`, i, 10*(i+1)))
	}
	page := db.Query("orders", `{"limit":2}`)
	want("a page", len(page.Items), 2)
	rest := db.Query("orders", map[string]any{"limit": 2, "cursor": page.Cursor})
	want("the next page", fmt.Sprint(len(rest.Items), rest.Items[0].ID, rest.Cursor), "12")
	want("by id", fmt.Sprint(len(db.Query("orders", `{"idPrefix":"1"}`).Items), db.Plan("orders", `{"idPrefix":"1"}`).Scanned), "1 1")
	want("a count", db.Count("orders", map[string]any{"where": "doc.total >= params.n", "params": map[string]int{"n": 1}}), 2)
	want("a plan", fmt.Sprintf("%+v", db.Plan("orders", `{"where":"doc.total == 2"}`)), "{Index:/total Scanned:1 Returned:1 Behind:<nil> Building:[]}")
	want("those pending", db.Status().PendingExpiry, 3)
	forecast := db.Forecast("orders", `{"next":"25s"}`)
	want("the forecast", fmt.Sprint(forecast.Due, forecast.Later), "2 1")
	db.AdvanceTo(db.Now().Add(15 * time.Second))
	want("those left", db.Count("orders", ""), 2)
	db.Finish()
	want("those left at the end", db.Count("orders", ""), 0)
	cause := db.Submit("document.create", "none", "a", `{}`, client.MsgID("x"))
	db.WantEvents(db.Seq(), fmt.Sprintf(`{"type":"MutationRejected","collection":"none","cause":"mutations/%d","body":{"code":404}}`, cause))
	db.DeleteCollection("orders")
	if _, ok := db.Collection("orders"); ok {
		t.Error("a collection that was deleted is there")
	}
	db.Close()
}

// TestTTLOption: the options of package client set the ttl, also of a submitted write.
func TestTTLOption(t *testing.T) {
	t.Parallel()
	db := lapsetest.New(t)
	db.CreateCollection("c", `{"defaultTtl":3600}`)
	db.Create("c", "brief", `{"ttl":5,"n":1}`, client.TTL(time.Minute))
	db.Create("c", "kept", `{}`, client.NeverExpire)
	db.Create("c", "patched", `{}`)
	db.Patch("c", "patched", `{}`, client.NeverExpire)
	db.Submit("document.create", "c", "submitted", `{}`, client.TTL(30*time.Second))
	db.Finish()
	var got []string
	for _, e := range db.Events(0, client.DocumentExpired) {
		got = append(got, fmt.Sprint(e.ID, " ", e.TTL, " ", e.Deadline.Equal(e.Time), " ", string(e.Body)))
	}
	if got := strings.Join(got, ", "); got != `submitted 30s true {"id":"submitted","ttl":30}, brief 1m0s true {"id":"brief","n":1,"ttl":60}` {
		t.Error(got)
	}
}

// TestErrorCodes: Do returns the error codes of the contract, also for errors before a
// request is sent.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	db := lapsetest.New(t)
	db.CreateCollection("c", `{"defaultTtl":10}`)
	db.Create("c", "a", `{}`)
	for _, test := range []struct {
		op, collection, id string
		body               any
		opts               []client.WriteOption
		want               *client.Error
	}{
		{"collection.create", "c", "", nil, nil, client.ErrCollectionExists},
		{"collection.create", "d", "", `{"defaultTtl":0}`, nil, client.ErrBadTTL},
		{"collection.get", "d", "", nil, nil, client.ErrCollectionNotFound},
		{"document.create", "c", "a", `{}`, nil, client.ErrDocumentExists},
		{"document.replace", "c", "b", `{}`, nil, client.ErrDocumentNotFound},
		{"document.upsert", "c", "a", `{"ttl":"x"}`, nil, client.ErrBadTTL},
		{"document.upsert", "c", "a", `{}`, []client.WriteOption{client.TTL(time.Millisecond)}, client.ErrBadTTL},
		{"document.upsert", "c", "a", `{"id":"b"}`, nil, client.ErrBadID},
		{"document.upsert", "c", strings.Repeat("x", 256), `{}`, nil, client.ErrBadID},
		{"document.upsert", ".", "a", `{}`, nil, client.ErrBadRequest},
		{"document.upsert", "c", "a", `{}`, []client.WriteOption{client.IfMatch("1")}, client.ErrPreconditionFailed},
		{"document.upsert", "c", "a", strings.Repeat(" ", 3<<20), nil, client.ErrTooLarge},
		{"document.get", "c", "a", nil, []client.WriteOption{client.MinSeq(9)}, client.ErrTimeout},
		{"query", "c", "", `{"where":"doc."}`, nil, client.ErrBadQuery},
		{"batch", "c", "", `{}`, nil, client.ErrBadRequest},
		{"history", "c", "never", nil, nil, client.ErrDocumentNotFound},
		{"nonsense", "", "", nil, nil, client.ErrBadRequest},
		{"snapshot.create", "", "", nil, nil, client.ErrBadRequest},
	} {
		reply, err := db.Do(test.op, test.collection, test.id, test.body, test.opts...)
		if !errors.Is(err, test.want) || reply != nil && (reply.Status != test.want.Code || !json.Valid(reply.Body)) {
			t.Errorf("%+v: %v %v", test, reply, err)
		}
	}
	if _, err := db.Do("document.upsert", "c", "a", func() {}); err == nil {
		t.Error("a func went as JSON")
	}
	db.WantEvents(3, "")
}

// recorder records a failure without failing the real test.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestErrorFailsTest: an error fails the test with a message that names the cause.
func TestErrorFailsTest(t *testing.T) {
	t.Parallel()
	const two = `{"seq":2,"time":"2015-05-17T10:05:00.000Z","type":"CollectionCreated","collection":"sessions","body":{}}`
	for _, test := range []struct {
		do   func(db *lapsetest.DB)
		want string
	}{
		{func(db *lapsetest.DB) { db.Create("none", "a", "{}") }, `document.create none a: there is no collection "none"`},
		{func(db *lapsetest.DB) { db.Document("c", strings.Repeat("x", 256)) }, "400 bad_id"},
		{func(db *lapsetest.DB) { db.Document(".", "x") }, "400 bad_request"},
		{func(db *lapsetest.DB) { db.Query("c", `{"limit":0}`) }, "limit 0"},
		{func(db *lapsetest.DB) { db.Count("c", `{`) }, "the query {"},
		{func(db *lapsetest.DB) { db.Submit("document.get", "c", "a", nil) }, `"document.get" is not a write`},
		{func(db *lapsetest.DB) { db.Submit("document.create", "c", "a", make(chan int)) }, "chan int cannot be written as JSON"},
		{func(db *lapsetest.DB) { db.Advance(-time.Second) }, "the time goes back by 1000 ms"},
		{func(db *lapsetest.DB) { db.AdvanceTo(db.Now().Add(-time.Millisecond)) }, "the time goes back by 1 ms"},
		{func(db *lapsetest.DB) { db.Close(); db.Seq() }, "closed"},
		{func(db *lapsetest.DB) { db.Simulate(strings.NewReader("\npoison")) }, "line 2: the line must be a JSON object of at most 1024 levels: byte 0"},
		{func(db *lapsetest.DB) {
			db.Simulate(strings.NewReader(`{"at":"1999-12-31T23:59:59Z","op":"document.delete","collection":"c","id":"a"}`))
		}, "line 1: the time goes back by 1000 ms"},
		{func(db *lapsetest.DB) { db.Load(strings.NewReader(two)) }, "load into a new one"},
		{func(db *lapsetest.DB) { db.WantEvents(1, "") }, "1 events more than wanted"},
		{func(db *lapsetest.DB) { db.WantEvents(2, `{"type":"DocumentCreated"}`) }, "there is no such event"},
		{func(db *lapsetest.DB) { db.WantEvents(1, `{"type":"DocumentCreated"}`) }, `type is "CollectionCreated"`},
		{func(db *lapsetest.DB) { db.WantEvents(1, `{"id":"a"}`) }, "it has no id"},
		{func(db *lapsetest.DB) { db.WantEvents(1, `{"body":{"defaultTtl":1}}`) }, "body.defaultTtl is null"},
		{func(db *lapsetest.DB) { db.WantEvents(1, `{`) }, "what is wanted is not JSON"},
	} {
		r := fails(t, func(r *recorder) {
			db := lapsetest.New(r)
			db.CreateCollection("c", "")
			test.do(db)
		})
		if !strings.Contains(r.message, test.want) {
			t.Errorf("it says %q, want %q", r.message, test.want)
		}
	}
	for _, test := range []struct {
		do   func(r *recorder)
		want string
	}{
		{func(r *recorder) { lapsetest.New(r, lapsetest.At("yesterday")) }, `At("yesterday")`},
		{func(r *recorder) { lapsetest.New(r, lapsetest.At("1969-12-31T00:00:00Z")) }, "before 1970"},
		{func(r *recorder) { lapsetest.New(r).Load(strings.NewReader(two + "\n{}")) }, "line 2 is no event: it has no seq"},
		{func(r *recorder) { lapsetest.New(r).Load(strings.NewReader(two + "\n" + two)) }, "line 2: event 2 comes after event 2"},
		{func(r *recorder) {
			lapsetest.New(r).Load(strings.NewReader(strings.Replace(two, "Created", "Deleted", 1)))
		}, "1 of 1 events do not fit"},
	} {
		if r := fails(t, test.do); !strings.Contains(r.message, test.want) {
			t.Errorf("it says %q, want %q", r.message, test.want)
		}
	}
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "lapsetest: document.delete c a: there is no collection") {
			t.Errorf("without a test the panic is %q", p)
		}
	}()
	db := lapsetest.Open()
	defer db.Close()
	db.Delete("c", "a")
}

func fails(t *testing.T, do func(r *recorder)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(r)
	}()
	<-done
	if r.message == "" {
		t.Error("it did not fail")
	}
	return r
}

// TestDeterministicLog: the same mutations, run in four databases at once, give the same log and
// digest; loading that log gives the same database.
func TestDeterministicLog(t *testing.T) {
	t.Parallel()
	var mutations strings.Builder
	mutations.WriteString(`{"at":"2015-05-17T10:05:00Z","op":"collection.create","collection":"sessions","body":{"defaultTtl":30}}` + "\n")
	for i := range 1000 {
		fmt.Fprintf(&mutations, `{"at":%q,"op":"document.upsert","collection":"sessions","id":"%d","body":{"n":%d}}`+"\n",
			time.Unix(1431857101+int64(i/3), 0).UTC().Format(time.RFC3339), i*i%97, i)
	}
	var wg sync.WaitGroup
	logs, digests := make([]string, 4), make([]string, 4)
	for i := range logs {
		wg.Go(func() {
			db := lapsetest.New(t)
			db.Simulate(strings.NewReader(mutations.String()))
			digests[i] = db.Digest()
			db.Finish()
			logs[i] = db.Log()
		})
	}
	wg.Wait()
	for i := range logs {
		if logs[i] != logs[0] || digests[i] != digests[0] || logs[i] == "" {
			t.Fatalf("run %d gave another log or digest", i)
		}
	}
	whole := lapsetest.New(t)
	whole.Load(strings.NewReader(logs[0]))
	if whole.Log() != logs[0] {
		t.Error("a log came out of Load as another")
	}
	seq, _, _ := strings.Cut(digests[0], ":")
	var last uint64
	_, _ = fmt.Sscan(seq, &last)
	part := lapsetest.New(t)
	part.Load(strings.NewReader(logs[0]), lapsetest.UntilSeq(last))
	if part.Digest() != digests[0] {
		t.Errorf("the digest is %s, it was %s", part.Digest(), digests[0])
	}
	part.Finish()
	if part.Log() != logs[0] {
		t.Error("a log that was loaded in part goes on in another way")
	}
	for _, until := range []lapsetest.LoadOption{lapsetest.UntilSeq(0), lapsetest.UntilTime(time.UnixMilli(0)), lapsetest.UntilTime(time.Time{})} {
		none := lapsetest.New(t)
		none.Load(strings.NewReader(logs[0]), until)
		if none.Log() != "" {
			t.Error("zero is no limit")
		}
	}
}

// TestConcurrentUse: goroutines may share a database, and in a bubble no call takes time.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := lapsetest.New(t)
		db.CreateCollection("c", `{"defaultTtl":1}`)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 50 {
					db.Upsert("c", fmt.Sprint(i), fmt.Sprintf(`{"n":%d}`, j))
					db.Advance(time.Millisecond)
					db.Document("c", fmt.Sprint(j%8))
				}
			})
		}
		began := time.Now()
		wg.Wait()
		if passed := time.Since(began); passed != 0 {
			t.Errorf("%s passed", passed)
		}
		if db.Now().UnixMilli()%1000 != 400 {
			t.Errorf("it is %s", db.Now())
		}
	})
}

// TestParallelDatabases: databases in bubbles and outside do not disturb each other.
func TestParallelDatabases(t *testing.T) {
	for i := range stress.Pick(16, 1000) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			use := func(t *testing.T) {
				db := lapsetest.New(t)
				db.CreateCollection("c", `{"defaultTtl":5,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
				for j := range 40 {
					db.Upsert("c", fmt.Sprint(j%7), fmt.Sprintf(`{"n":%d}`, j))
					db.Advance(time.Second)
					if n := db.Count("c", `{"where":"doc.n >= 0"}`); n != min(j+1, 4) {
						t.Errorf("%d live after %d, want %d", n, j, min(j+1, 4))
					}
				}
			}
			if i%2 == 0 {
				use(t)
			} else {
				synctest.Test(t, use)
			}
		})
	}
}

// TestPageEndsEarly: documents that do not fit one reply together come on two pages, as from
// a server.
func TestPageEndsEarly(t *testing.T) {
	t.Parallel()
	db := lapsetest.New(t)
	db.CreateCollection("c", "")
	for _, id := range []string{"a", "b", "c"} {
		db.Create("c", id, map[string]string{"text": strings.Repeat("x", 1_900_000)})
	}
	first := db.Query("c", "")
	rest := db.Query("c", map[string]string{"cursor": first.Cursor})
	if len(first.Items) != 2 || len(rest.Items) != 1 || rest.Items[0].ID != "c" || rest.Cursor != "" {
		t.Errorf("pages of %d and %d documents", len(first.Items), len(rest.Items))
	}
	for i := range 300 {
		db.CreateCollection(fmt.Sprint("c", i), `{"metadata":{"owner":"`+strings.Repeat("x", 15_000)+`"}}`)
	}
	if all := db.Collections(); len(all) != 301 {
		t.Errorf("%d of 301 collections", len(all))
	}
}
