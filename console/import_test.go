package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
)

// TestImport: lines become documents, a dry run only says so, refused lines come back, and a
// request that makes no sense changes nothing.
func TestImport(t *testing.T) {
	coll := collection(t, client.DefaultTTL(2*time.Hour))
	s := start(t, console.Options{Write: true})
	put(t, coll, "old", `{"n":0}`)
	post := func(s string) string { return "/api/import?collection=" + coll.Name() + s }
	lines := `{"key":"old","n":1}` + "\n" + fmt.Sprintf(`{"key":"new","end":%d}`, time.Now().AddDate(2, 0, 0).Unix()) + "\n" + `{"key":"past","end":1}` + "\nno JSON\n" + `{"n":1e400}` + "\n"
	options := "&id=/key&expires=/end&drop=/key&drop=/end"
	for _, c := range []struct{ more, created string }{{"&dryRun=true", `"due":[0,1,1,1,1],"never":0}`}, {"", `"due":[0,1,1,1,1],"never":0}`}} {
		response, text := send(t, s, "POST", post(options+c.more), lines, nil)
		for _, want := range []string{`{"lines":5,"created":1,"replaced":1,"existed":0,"past":1,`, `"unixSeconds":2`, `{"line":4,"code":400,"error":"bad_request"`, `"text":"no JSON"}`,
			`"error":"bad_id","message":"there is no id at /key: say which member has it","document":{"n":1e400}}`, c.created} {
			if response.StatusCode != 200 || !strings.Contains(text, want) {
				t.Errorf("%s: %d %s, want %s", c.more, response.StatusCode, text, want)
			}
		}
		old, err := client.Get[map[string]any](t.Context(), coll, "old")
		if err != nil || (old.Value["n"] == 1.0) != (c.more == "") || old.Value["key"] != nil {
			t.Errorf("%s: %v, %v", c.more, old, err)
		}
	}
	for query, code := range map[string]int{"&op=delete": 400, "&id=x": 400, "&dryRun=perhaps": 400, "&more=1": 400, "&id=/a&id=/b": 400} {
		want(t, code, `"error":"bad_request"`, s, "POST", post(query), `{"id":"a"}`, nil)
	}
	want(t, http.StatusMethodNotAllowed, "", s, "GET", post(""), "", nil)
	want(t, 404, "", s, "POST", "/api/import?collection=missing", `{"id":"a"}`, nil)
	want(t, http.StatusRequestEntityTooLarge, "", s, "POST", post(""), strings.Repeat("x", 3<<20+1), nil)
	off := collection(t)
	want(t, 400, "TTL is off", s, "POST", "/api/import?expires=/end&collection="+off.Name(), `{"id":"a","end":4102444800}`, nil)
	want(t, 403, "read_only", start(t, console.Options{}), "POST", post("&dryRun=true"), lines, nil)
}

// TestImportOfBadLines: the refused lines in a reply are bounded, and the others counted.
func TestImportOfBadLines(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{Write: true})
	for line, lines := range map[string]int{"x": 100_000, strings.Repeat("\x01", 1<<20): 1} {
		response, text := send(t, s, "POST", "/api/import?collection="+coll.Name(), strings.Repeat(line+"\n", lines), nil)
		var result struct {
			Lines   int
			Refused []json.RawMessage
			More    int
		}
		if err := json.Unmarshal([]byte(text), &result); err != nil {
			t.Fatal(response.StatusCode, err)
		}
		if len(text) > 5<<20 || result.Lines != lines || len(result.Refused)+result.More != lines || result.More == 0 {
			t.Errorf("%d bad lines of %d bytes: a reply of %d bytes with %d lines, %d refused and %d more", lines, len(line), len(text), result.Lines, len(result.Refused), result.More)
		}
	}
}

// TestImportOfWrongFile: a file of another kind is refused as a whole.
func TestImportOfWrongFile(t *testing.T) {
	coll := collection(t)
	s := start(t, console.Options{Write: true})
	event := `{"seq":1,"time":"2015-05-17T10:05:03.000Z","type":"DocumentDeleted","collection":"orders","id":"a"}` + "\n"
	for _, body := range []string{event, "[\n{}\n]", "id,total\na,5\n", "\x1F\x8B\x08"} {
		want(t, 400, "bad_request", s, "POST", "/api/import?collection="+coll.Name(), body, nil)
	}
}
