package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
	"github.com/lapsedb/lapse/webserver"
)

// send sends a request as the console's own page does, unless change alters it.
func send(t *testing.T, s *httptest.Server, method, path, body string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	check(t, err)
	r.Header.Set("Origin", s.URL)
	r.Header.Set("Lapse-Console", "1")
	if change != nil {
		change(r)
	}
	response, err := http.DefaultClient.Do(r)
	check(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(t, err)
	return response, string(text)
}

// header sets a header of a request.
func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// want is send, with the code that the reply must have and a part of its text.
func want(t *testing.T, code int, has string, s *httptest.Server, method, path, body string, change func(*http.Request)) {
	t.Helper()
	if response, text := send(t, s, method, path, body, change); response.StatusCode != code || !strings.Contains(text, has) {
		t.Errorf("%s %.60s: %d %.200s, want %d %s", method, path, response.StatusCode, text, code, has)
	}
}

// read decodes the reply to a GET, and returns its text.
func read(t *testing.T, s *httptest.Server, path string, into any) string {
	t.Helper()
	_, text := send(t, s, "GET", path, "", nil)
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err, text)
	}
	return text
}

// TestBodiesPassUnchanged: a body reaches the database and returns byte for byte, even
// where a browser's JSON parser would change it.
func TestBodiesPassUnchanged(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{Write: true})
	at := func(op, id string) string {
		return "/api/" + op + "?collection=" + coll.Name() + "&id=" + url.QueryEscape(id)
	}
	for _, id := range []string{"a", "..", "a/b?c#d", `<img src=x onerror=alert(1)>"'&`, "\u202egnp.exe", "ü %2F"} {
		const content = `"big":1e400,"exact":12345678901234567890,"zero":-0.0,"html":"</script><b>"`
		want(t, 201, content, s, "POST", at("document.upsert", id), `{`+content+`}`, nil)
		direct, err := lapse.Do(t.Context(), "document.get", coll.Name(), id, nil)
		check(t, err)
		response, text := send(t, s, "GET", at("document.get", id), "", nil)
		if response.StatusCode != 200 || text != string(direct.Body) {
			t.Errorf("%q: %d %s, want %s", id, response.StatusCode, text, direct.Body)
		}
		if got, want := response.Header.Get("Content-Type"), "application/json"; got != want {
			t.Errorf("Content-Type %q, want %q", got, want)
		}
	}
	_, text := send(t, s, "GET", at("document.get", "a"), "", nil)
	want(t, 412, `"error":"precondition_failed"`, s, "POST", at("document.replace", "a"), text, header("If-Match", "1"))
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	want(t, 200, "", s, "POST", at("document.touch", "a"), "", header("traceparent", parent))
	if _, text := send(t, s, "GET", at("history", "a"), "", nil); strings.Count(text, `"traceparent":"`+parent+`"`) != 1 {
		t.Errorf("the history has not one event with the trace context of the touch: %s", text)
	}
	if response, _ := send(t, s, "POST", at("document.delete", "a"), "", nil); response.StatusCode != 204 || response.Header.Get("Lapse-Seq") == "" {
		t.Errorf("delete: %d", response.StatusCode)
	}
}

// TestCodes: a path, its query or a body that cannot be is refused, as is what a console does
// not serve.
func TestCodes(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{Write: true})
	get := "/api/document.get?collection=" + coll.Name() + "&id=a"
	for code, paths := range map[int][]string{
		200: {"/api/status", "/api/collection.list", "/api/console", "/api/processes", "/api/log"},
		404: {get, "/api/collection.get?collection=none", "/api/snapshot.create", "/api/none", "/nothing"},
		405: {"/api/document.upsert?collection=a&id=a"},
		414: {"/api/status?x=" + strings.Repeat("x", 9000)},
		400: {
			strings.TrimSuffix(get, "a"), "/api/document.get?collection=a.b&id=a",
			"/api/feed?from=yesterday", "/api/feed?type=Nothing", "/api/feed?type=WriterStarted", "/api/feed?collection=a.b", "/api/feed?bodies=-1", "/api/feed?id=",
			// The query is at fault, not what it names.
			get + "%2", get + "&id=b", get + "&ids=b", get + ";x", "/api/collection.get?collection=none&id=a", "/api/status?collection=none", "/api/collection.list?%zz",
			"/api/console?a=b", "/api/processes?%", "/api/log?from=1", "/api/feed?bodies=%", "/api/feed?bodies=1&bodies=2", "/api/feed?form=1", "/api/consumers?x=1",
		},
	} {
		for _, path := range paths {
			response, text := send(t, s, "GET", path, "", nil)
			if response.StatusCode != code || code == 400 && (!strings.Contains(text, `"message":"`) || strings.Contains(text, "\n")) {
				t.Errorf("GET %.60s: %d %s, want %d", path, response.StatusCode, text, code)
			}
		}
	}
	upsert := strings.Replace(get, "get", "upsert", 1)
	want(t, 400, "", s, "GET", "/api/status", "", header("Lapse-Min-Seq", "1x"))
	want(t, 413, "too_large", s, "POST", upsert, `{"a":"`+strings.Repeat("x", 3<<20)+`"}`, nil)
	// A document of the maximum size passes.
	want(t, 201, "", s, "POST", upsert, `{"a":"`+strings.Repeat("x", 2<<20-8)+`"}`, nil)
}

// TestQueryCutsDocuments: with bodies, a longer document is what identifies it, and its
// beginning is beside it.
func TestQueryCutsDocuments(t *testing.T) {
	coll := collection(t, client.DefaultTTL(time.Hour))
	s := start(t, console.Options{})
	put(t, coll, "a", `{"n":1}`)
	put(t, coll, "b", `{"ttl":60,"text":"`+strings.Repeat("ä", 1000)+`"}`)
	put(t, coll, "c", `{}`)
	var got struct {
		Documents []map[string]any
		Cut       map[string]struct {
			Bytes int
			Text  string
		}
		Cursor string
	}
	response, text := send(t, s, "POST", "/api/query?bodies=100&collection="+coll.Name(), `{"deadlines":true,"limit":2}`, nil)
	if err := json.Unmarshal([]byte(text), &got); err != nil || response.StatusCode != 200 {
		t.Fatalf("%d %s: %v", response.StatusCode, text, err)
	}
	b := got.Documents[1]
	if got.Documents[0]["n"] != 1.0 || got.Cut["0"].Text != "" || len(b) != 6 || b["id"] != "b" || b["ttl"] != 60.0 || b["_deadline"] == nil || got.Cursor == "" {
		t.Errorf("%s", text)
	}
	if cut := got.Cut["1"]; cut.Bytes < 2000 || !strings.HasPrefix(cut.Text, `{"id":"b","ttl":60,"text":"ää`) || len(cut.Text) > 100 || !utf8.ValidString(cut.Text) {
		t.Errorf("%+v", cut)
	}
	for _, path := range []string{"/api/query?bodies=x&collection=" + coll.Name(), "/api/document.get?bodies=1&id=a&collection=" + coll.Name()} {
		want(t, 400, "", s, "POST", path, "", nil)
	}
}

// TestLifetimeInHeaders: a reply about a live document has its deadline and hold; the
// console forwards touch, hold, release and restore.
func TestLifetimeInHeaders(t *testing.T) {
	coll := collection(t, client.DefaultTTL(time.Hour))
	s := start(t, console.Options{Write: true})
	for _, step := range []struct {
		op, body, ifMatch string
		code              int
		rule, hold        string // "-" for no header
	}{
		{"document.create", `{"n":1}`, "", 201, "collection", "-"},
		{"document.get", "", "", 200, "collection", "-"},
		{"document.touch", "", "", 200, "collection", "-"},
		{"document.touch", `{"n":1}`, "", 400, "-", "-"},
		{"document.touch", "", "1", 412, "-", "-"},
		{"document.patch", `{"ttl":60}`, "", 200, "document", "-"},
		{"document.release", "", "", 409, "-", "-"},
		{"document.hold", "", "", 200, "-", ""},
		{"document.hold", `{"reason":"für case 47/11, „urgent“"}`, "", 200, "-", "für case 47/11, „urgent“"},
		{"document.hold", `{"reason":"` + strings.Repeat("x", 1025) + `"}`, "", 400, "-", "-"},
		{"document.get", "", "", 200, "-", "für case 47/11, „urgent“"},
		{"document.delete", "", "", 423, "-", "-"},
		{"document.release", "", "1", 412, "-", "-"},
		{"document.release", "", "", 200, "document", "-"},
		{"document.restore", "", "", 409, "-", "-"},
		{"document.delete", "", "", 204, "-", "-"},
		{"document.restore", `{"version":"1"}`, "", 404, "-", "-"},
		{"document.restore", "", "", 201, "document", "-"},
	} {
		response, text := send(t, s, "POST", "/api/"+step.op+"?id=a&collection="+coll.Name(), step.body, func(r *http.Request) {
			if step.ifMatch != "" {
				r.Header.Set("If-Match", step.ifMatch)
			}
		})
		rule, hold := "-", "-"
		if got := response.Header.Values("Lapse-Rule"); len(got) > 0 {
			rule = got[0]
		}
		if got := response.Header.Values("Lapse-Hold"); len(got) > 0 {
			hold, _ = url.PathUnescape(got[0])
		}
		if response.StatusCode != step.code || rule != step.rule || hold != step.hold {
			t.Errorf("%s %s: %d, rule %s, hold %q, want %d, %s, %q\n%s", step.op, step.body, response.StatusCode, rule, hold, step.code, step.rule, step.hold, text)
		}
		deadline, err := strconv.ParseInt(response.Header.Get("Lapse-Deadline"), 10, 64)
		if (err == nil) != (rule != "-") || err == nil && time.Until(time.Unix(deadline, 0)) > time.Hour {
			t.Errorf("%s: Lapse-Deadline %q", step.op, response.Header.Get("Lapse-Deadline"))
		}
	}
}

// TestCrossSiteRequestsRefused: a page of another site can neither read the console by
// DNS rebinding nor send it a change.
func TestCrossSiteRequestsRefused(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{Write: true, Hosts: []string{"console.example"}})
	address := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := net.SplitHostPort(address)
	path := "/api/document.upsert?collection=" + coll.Name() + "&id=a"
	for name, test := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"own":                  {nil, 201},
		"rebound host":         {func(r *http.Request) { r.Host = "evil.example:" + port; r.Header.Set("Origin", "http://"+r.Host) }, 403},
		"host with own inside": {func(r *http.Request) { r.Host = "127.0.0.1.evil.example"; r.Header.Set("Origin", "http://"+r.Host) }, 403},
		"strange host":         {func(r *http.Request) { r.Host = "a@127.0.0.1"; r.Header.Set("Origin", "http://"+r.Host) }, 403},
		"no origin":            {func(r *http.Request) { r.Header.Del("Origin") }, 403},
		"null origin":          {header("Origin", "null"), 403},
		"other origin":         {header("Origin", "http://evil.example"), 403},
		"other port":           {header("Origin", "http://127.0.0.1:1"), 403},
		"two origins":          {func(r *http.Request) { r.Header.Add("Origin", "http://evil.example") }, 403},
		"no header":            {func(r *http.Request) { r.Header.Del("Lapse-Console") }, 403},
		"cross-site":           {header("Sec-Fetch-Site", "cross-site"), 403},
		"same-site":            {header("Sec-Fetch-Site", "same-site"), 403},
		"localhost":            {func(r *http.Request) { r.Host = "localhost:" + port; r.Header.Set("Origin", "http://"+r.Host) }, 201},
		"given host by TLS":    {func(r *http.Request) { r.Host = "Console.example"; r.Header.Set("Origin", "https://console.example") }, 201},
	} {
		want(t, test.want, "", s, "POST", path, `{}`, test.change)
		// A refused request changed nothing; the deletion also resets the next case.
		if _, err := lapse.Do(t.Context(), "document.delete", coll.Name(), "a", nil); (err == nil) != (test.want == 201) {
			t.Errorf("%s: the deletion says %v", name, err)
		}
	}
	for _, path := range []string{"/", "/api/status", "/api/feed"} {
		want(t, 403, "", s, "GET", path, "", func(r *http.Request) { r.Host = "evil.example" })
	}
}

func TestPagesHaveStrictHeaders(t *testing.T) {
	s := start(t, console.Options{})
	response, text := send(t, s, "GET", "/", "", nil)
	policy := response.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("Content-Security-Policy %q", policy)
	}
	if len(response.Header.Values("Set-Cookie")) > 0 || !strings.Contains(text, `src="app.js"`) {
		t.Errorf("%v\n%s", response.Header, text)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	response, _ = send(t, s, "GET", "/", "", header("If-None-Match", response.Header.Get("ETag")))
	if response.StatusCode != http.StatusNotModified {
		t.Errorf("with its ETag: %d", response.StatusCode)
	}
	response, packed := send(t, s, "GET", "/vendor/libraries.js", "", header("Accept-Encoding", "gzip"))
	if response.Header.Get("Content-Encoding") != "gzip" || response.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("a module: %v", response.Header)
	}
	if _, plain := send(t, s, "GET", "/vendor/libraries.js", "", header("Accept-Encoding", "identity")); len(plain) <= len(packed) {
		t.Errorf("%d bytes gzipped, %d plain", len(packed), len(plain))
	}
}

// TestSeveralDatabases: each database has its console, which names the others; an unknown one
// is a 404 with the list, unless that takes a token.
func TestSeveralDatabases(t *testing.T) {
	other, err := client.Connect(lapse.Conn().ConnectedUrl(), client.WithDatabase("other"))
	check(t, err)
	defer other.Close()
	clients := []*client.Client{lapse, other}
	s := host(t, http.StripPrefix("/some/prefix", console.Several(t.Context(), clients, console.Options{})))
	locked := host(t, console.Several(t.Context(), clients, console.Options{Token: "0123456789abcdef"}))
	for _, test := range []struct {
		s                *httptest.Server
		path, host, ends string
		code             int
		has              string
	}{
		{s, "/some/prefix/", "", "/some/prefix/main/", 200, `src="app.js"`},
		{s, "/some/prefix/other", "", "/some/prefix/other/", 200, `src="app.js"`},
		{s, "/some/prefix/other/api/console", "", "", 200, `"database":"other",`},
		{s, "/some/prefix/main/api/console", "", "", 200, `"databases":["main","other"]`},
		{s, "/some/prefix/none/", "", "", 404, `<a href="../other/">other</a>`},
		{s, "/some/prefix/none", "", "", 404, `<a href="main/">main</a>`},
		{s, "/some/prefix/<b>/a", "", "", 404, `“&lt;b&gt;”`},
		{s, "/some/prefix/none/api/status", "", "", 404, "use one of main, other"},
		{s, "/some/prefix/none/", "evil.example", "", 403, "forbidden_host"},
		{locked, "/none/", "", "", 404, "<ul></ul>"},
		{locked, "/none/api/status", "", "", 404, `no database \"none\" here"`},
	} {
		response, text := send(t, test.s, "GET", test.path, "", func(r *http.Request) {
			if test.host != "" {
				r.Host = test.host
			}
		})
		if response.StatusCode != test.code || !strings.Contains(text, test.has) || test.ends != "" && response.Request.URL.Path != test.ends {
			t.Errorf("%s: %d at %s: %s", test.path, response.StatusCode, response.Request.URL.Path, text)
		}
		if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", test.path, policy)
		}
	}
	star := httptest.NewRequest("GET", "/", nil)
	star.URL.Path, star.Host = "*", "127.0.0.1" // as by "GET * HTTP/1.1"
	reply := httptest.NewRecorder()
	console.Several(t.Context(), clients, console.Options{}).ServeHTTP(reply, star)
	if reply.Code != 404 {
		t.Errorf("*: %d: %s", reply.Code, reply.Body)
	}
}

func TestReadOnly(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{})
	for _, op := range []string{"collection.create", "collection.replace", "collection.delete", "document.create", "document.replace", "document.upsert", "document.patch", "document.delete",
		"document.touch", "document.hold", "document.release", "document.restore"} {
		want(t, 403, `"error":"read_only"`, s, "POST", "/api/"+op+"?collection="+coll.Name()+"&id=a", `{}`, nil)
	}
	if response, text := send(t, s, "POST", "/api/query?collection="+coll.Name(), `{"count":true}`, nil); response.StatusCode != 200 || text != `{"count":0}` {
		t.Errorf("query: %d %s", response.StatusCode, text)
	}
}

func TestToken(t *testing.T) {
	const token = "0123456789abcdef"
	s := start(t, console.Options{Token: token})
	for _, path := range []string{"/api/status", "/api/console", "/api/feed", "/api/processes", "/api/log"} {
		for _, given := range []string{"", "Bearer ", "Bearer " + token + "x", "bearer " + token} {
			want(t, 401, "", s, "GET", path, "", header("Authorization", given))
		}
	}
	want(t, 200, "", s, "GET", "/api/status", "", header("Authorization", "Bearer "+token))
	want(t, 200, "", s, "GET", "/", "", nil)
}

// TestConsumersListed: the consumers of the log are listed with what they lack.
func TestConsumersListed(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{})
	name := coll.Name()[:8] // new for each run
	put(t, coll, "a", `{}`)
	put(t, coll, "b", `{}`)
	for e, err := range lapse.Changes(t.Context(), client.Durable(name), client.InCollection(coll.Name()), client.OfType(client.DocumentCreated), client.FromSeq(1)) {
		check(t, err)
		if e.ID == "b" {
			break // which acknowledges the first one only
		}
	}
	put(t, coll, "c", `{}`)
	for began := time.Now(); ; {
		var said struct{ Consumers []client.Consumer }
		text := read(t, s, "/api/consumers", &said)
		i := slices.IndexFunc(said.Consumers, func(c client.Consumer) bool { return c.Name == name })
		if i >= 0 && said.Consumers[i].Pending+uint64(said.Consumers[i].Unacked) == 2 && said.Consumers[i].LastAck != nil && !said.Consumers[i].Reader {
			break
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal(text)
		}
	}
}

// TestSamples: the console keeps samples of the status, for an hour.
func TestSamples(t *testing.T) {
	s := start(t, console.Options{})
	for {
		var said struct {
			Samples []struct{ At, Seq, P99, Overdue int64 }
		}
		read(t, s, "/api/samples", &said)
		if len(said.Samples) > 0 {
			if first := said.Samples[0]; first.Seq == 0 || time.Since(time.UnixMilli(first.At)) > time.Minute {
				t.Errorf("%+v", first)
			}
			break
		}
	}
	if n := console.KeptSamples(1000); n != 360 {
		t.Error(n)
	}
}

// TestOutlook: the forecasts of all collections are added up by the minute.
func TestOutlook(t *testing.T) {
	s := start(t, console.Options{})
	names := []string{}
	for _, n := range []int{3, 1} {
		coll := collection(t, client.DefaultTTL(10*time.Minute))
		names = append(names, coll.Name())
		for i := range n {
			if _, err := client.Upsert(t.Context(), coll, strconv.Itoa(i), struct{}{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var said struct {
		Now, Due int64
		Minutes  []int64
		Most     struct {
			Collection       string
			From, Until, Due int64
		}
		Forecasted, WithTTL int
	}
	text := read(t, s, "/api/outlook", &said)
	sum := int64(0)
	for _, n := range said.Minutes {
		sum += n
	}
	if said.Due < 4 || sum != said.Due || len(said.Minutes) != 60 || said.Most.Collection != names[0] || said.Most.Due < 2 || said.Forecasted < 2 || said.WithTTL != said.Forecasted {
		t.Error(text)
	}
	if in := said.Most.Until - said.Now; in < 9*60 || in > 11*60 {
		t.Errorf("most are due in %d s", in)
	}
}

// events reads a feed.
type events struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
	id     string // of the last event
}

func follow(t *testing.T, s *httptest.Server, query, lastID string) *events {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/api/feed?"+query, nil)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultClient.Do(r)
	check(t, err)
	t.Cleanup(func() { cancel(); response.Body.Close() })
	if got := response.Header.Get("Content-Type"); response.StatusCode != 200 || got != "text/event-stream" {
		t.Fatalf("feed: %d %s", response.StatusCode, got)
	}
	e := &events{t: t, lines: bufio.NewScanner(response.Body), cancel: cancel}
	e.lines.Buffer(nil, 8<<20)
	return e
}

// next returns the data of the next event.
func (e *events) next() string {
	e.t.Helper()
	for e.lines.Scan() {
		if id, ok := strings.CutPrefix(e.lines.Text(), "id: "); ok {
			e.id = id
		} else if data, ok := strings.CutPrefix(e.lines.Text(), "data: "); ok {
			return data
		}
	}
	e.t.Fatalf("the feed ended: %v", e.lines.Err())
	return ""
}

func TestFeed(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{})
	_, before, err := lapse.LogBounds(t.Context())
	check(t, err)
	only := "collection=" + coll.Name()
	live := follow(t, s, only, "")
	for live.id == "" && live.lines.Scan() { // it has an id before the first event
		live.id, _ = strings.CutPrefix(live.lines.Text(), "id: ")
	}
	if live.id != strconv.FormatUint(before, 10) {
		t.Errorf("a feed from now begins after %q, want %d", live.id, before)
	}
	put(t, coll, "a", `{"n":1}`)
	put(t, coll, "b", `{"long":"`+strings.Repeat("x", 100)+`"}`)
	put(t, coll, "a", `{"n":2}`)
	if got := live.next(); !strings.Contains(got, `"type":"DocumentCreated"`) || !strings.Contains(got, `"n":1`) {
		t.Errorf("first: %s", got)
	}
	// A reader resumes after a disconnect.
	live.cancel()
	again := follow(t, s, only+"&bodies=64", live.id)
	if got := again.next(); !strings.Contains(got, `"id":"b"`) || strings.Contains(got, "xxx") || !strings.Contains(got, `"bodyBytes":`) {
		t.Errorf("second: %s", got)
	}
	if got := again.next(); !strings.Contains(got, `"n":2`) {
		t.Errorf("third: %s", got)
	}
	for query, want := range map[string]string{
		"&id=b": `"id":"b"`, "&type=DocumentReplaced": `"n":2`, "": `"type":"CollectionCreated"`,
	} {
		if got := follow(t, s, only+"&from=1"+query, "").next(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", query, got)
		}
	}
	none := follow(t, s, only+"&id=nobody&from=1", "")
	for none.lines.Scan() && none.lines.Text() != "event: now" {
	}
	put(t, coll, "nobody", `{}`)
	if got := none.next(); !strings.Contains(got, `"id":"nobody"`) {
		t.Errorf("after now: %s", got)
	}
	if got := follow(t, s, only+"&from="+url.QueryEscape(time.Unix(1, 0).UTC().Format(time.RFC3339)), "").next(); !strings.Contains(got, "CollectionCreated") {
		t.Errorf("from a time: %s", got)
	}
}

// TestFeedBeyondEnd: a feed that is to go on after what the log has is refused.
func TestFeedBeyondEnd(t *testing.T) {
	s := start(t, console.Options{})
	for query, lastID := range map[string]string{"": "99999", "?from=100000": "", "?from=1": "99999"} {
		response, text := send(t, s, "GET", "/api/feed"+query, "", header("Last-Event-ID", lastID))
		if response.StatusCode != 400 || !strings.Contains(text, `"bad_request"`) || !strings.Contains(text, "after sequence 99999, and the log ends at ") {
			t.Errorf("%s after %q: %d %s", query, lastID, response.StatusCode, text)
		}
	}
}

// TestFeedBeginsAtFrom: a feed sends nothing before from, which may be a time to come or
// the next event, whatever a reader that reconnects has received last.
func TestFeedBeginsAtFrom(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{})
	put(t, coll, "before", `{}`)
	_, last, err := lapse.LogBounds(t.Context())
	check(t, err)
	for _, resumed := range []string{"", "0", strconv.FormatUint(last, 10)} {
		for _, byTime := range []bool{false, true} {
			seq, soon := last+1, time.Now().Add(100*time.Millisecond).UTC().Truncate(time.Millisecond)
			from := strconv.FormatUint(seq, 10)
			if byTime {
				from = soon.Format(time.RFC3339Nano)
			}
			feed := follow(t, s, "collection="+coll.Name()+"&from="+from, resumed)
			for last < seq || time.Now().Before(soon) {
				reply, err := lapse.Do(t.Context(), "document.upsert", coll.Name(), "a", []byte(`{}`))
				check(t, err)
				last = reply.Seq
			}
			put(t, coll, "a", `{}`)
			var e client.Event
			check(t, json.Unmarshal([]byte(feed.next()), &e))
			if e.Seq < seq && !byTime || e.Time.Before(soon) && byTime || feed.id != strconv.FormatUint(e.Seq, 10) {
				t.Errorf("from %s after %q begins with id %s, event %d of %v", from, resumed, feed.id, e.Seq, e.Time)
			}
		}
	}
}

// TestFeedsAreBounded: the console refuses a feed above the limit; a feed that ends frees
// its slot.
func TestFeedsAreBounded(t *testing.T) {
	s := start(t, console.Options{})
	var last *events
	for range 8 {
		last = follow(t, s, "", "")
	}
	want(t, 429, "overloaded", s, "GET", "/api/feed", "", nil)
	last.cancel()
	for {
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/api/feed", nil)
		response, err := http.DefaultClient.Do(r)
		check(t, err)
		cancel()
		response.Body.Close()
		if response.StatusCode == 200 {
			return
		}
	}
}

// TestSlowReaderIsCutOff: a reader that receives nothing loses its connection, which
// frees its slot and memory; it can resume where it was.
func TestSlowReaderIsCutOff(t *testing.T) {
	coll := collection(t)
	const events = 8
	for i := range events { // far more than a connection buffers
		put(t, coll, strconv.Itoa(i), `{"a":"`+strings.Repeat("x", 1<<20)+`"}`)
	}
	h := console.New(t.Context(), lapse, console.Options{})
	h.SetWriteTimeout(50 * time.Millisecond)
	cutOff := make(chan struct{})
	s := host(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		close(cutOff)
	}))
	slow, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	check(t, err)
	defer slow.Close()
	check(t, slow.(*net.TCPConn).SetReadBuffer(64<<10))
	query := "collection=" + coll.Name() + "&type=DocumentCreated&from=1"
	if _, err := io.WriteString(slow, "GET /api/feed?"+query+" HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-cutOff
	// The reader has the beginning of the feed, possibly with a partial last event.
	received, _ := io.ReadAll(slow)
	whole := received[:bytes.LastIndex(received, []byte("\n\n"))+1]
	n := bytes.Count(whole, []byte("\ndata: "))
	if n == events {
		t.Fatal("a connection holds the whole feed")
	}
	last := ""
	for line := range strings.Lines(string(whole)) {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			last = strings.TrimSpace(id)
		}
	}
	again := follow(t, start(t, console.Options{}), query, last)
	for i := n; i < events; i++ {
		if got := again.next(); !strings.Contains(got, fmt.Sprintf(`"id":"%d"`, i)) {
			t.Fatalf("event %d: %.200s", i, got)
		}
	}
}

// TestServerStops: the end of the server ends its feeds.
func TestServerStops(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	stop := webserver.Serve(listener, console.New(t.Context(), lapse, console.Options{}), "console", slog.New(slog.DiscardHandler))
	live := follow(t, &httptest.Server{URL: "http://" + listener.Addr().String()}, "", "")
	stop()
	for live.lines.Scan() {
	}
	if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

func TestDatabaseNotServed(t *testing.T) {
	other, err := client.Connect(lapse.Conn().ConnectedUrl(), client.WithDatabase("other"))
	check(t, err)
	defer other.Close()
	s := httptest.NewServer(console.New(t.Context(), other, console.Options{}))
	defer s.Close()
	for _, path := range []string{"/api/status", "/api/processes", "/api/log", "/api/feed"} {
		if response, text := send(t, s, "GET", path, "", nil); response.StatusCode < 400 || !strings.Contains(text, `"message":"`) || !strings.Contains(text, "other") {
			t.Errorf("%s: %d %s", path, response.StatusCode, text)
		}
	}
}
