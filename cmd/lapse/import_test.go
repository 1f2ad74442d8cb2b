package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// importInto runs lapse import against a stand-in.
func importInto(t *testing.T, s *standin, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(strings.NewReader(input), &out, &errs)
	t.Setenv(serverVariable, "")
	code = a.run(context.Background(), append([]string{"import", "orders", "--server", s.server.ClientURL()}, args...))
	return out.String(), errs.String(), code
}

// TestImportRejects: refused lines are in the file with what is wrong, whatever they hold;
// that file is never the one to import.
func TestImportRejects(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders"}`, false)
	rejects := filepath.Join(t.TempDir(), "rejects.jsonl")
	input := "{\"id\":\"a\x01\"}\nnot \xff JSON\n{\"total\":1}\n" + strings.Repeat("x", schema.MaxLineBytes) + "\n" +
		`{"id":"b","x":"` + strings.Repeat("y", schema.MaxDocumentBytes) + "\"}\n"
	_, stderr, code := importInto(t, s, input, "--rejects", rejects)
	if code != 1 || stderr != "lapse: 5 of 5 lines were refused: they are in "+rejects+"\n" {
		t.Errorf("exit %d, %s", code, stderr)
	}
	text, err := os.ReadFile(rejects)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range bytes.Lines(text) {
		var r struct {
			Line, Code     int
			Error, Message string
			Document       json.RawMessage
			Text           string
		}
		if err := json.Unmarshal(line, &r); err != nil || r.Message == "" {
			t.Errorf("%.100s: %v", line, err)
		}
		got = append(got, strings.TrimSpace(r.Error+" "+string(r.Document)[:min(len(r.Document), 13)]+r.Text))
	}
	want := []string{`bad_request {"id":"a` + "\x01" + `"}`, "bad_request not \uFFFD JSON", `bad_id {"total":1}`, "too_large", `too_large {"id":"b","x"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, stderr, code := importInto(t, s, "", rejects, "--rejects", rejects); code != 2 || !strings.Contains(stderr, "is the file to import") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if after, err := os.ReadFile(rejects); err != nil || !bytes.Equal(after, text) {
		t.Errorf("the file changed (%v)", err)
	}
	if _, stderr, _ := importInto(t, s, strings.Repeat("x\n", 12)); strings.Count(stderr, "\n") != mostRejectsShown+1 || !strings.Contains(stderr, "--rejects FILE keeps them all") {
		t.Error(stderr)
	}
}

// TestImportDryRun: a dry run reads, and counts what would be stored by when it would
// expire.
func TestImportDryRun(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders","defaultTtl":7200}`, false)
	s.answer("batch.orders", 200, `{"results":[{"code":200,"body":{"id":"a"}},{"code":404,"body":{"code":404,"error":"document_not_found","message":"no"}},{"code":413,"body":{"code":413,"error":"too_large","message":"no"}}]}`, false)
	const input = `{"id":"a","ttl":-1}` + "\n" + `{"id":"b","ttl":60}` + "\n" + `{"id":"c"}` + "\n"
	for op, want := range map[string][3]int{"upsert": {1, 2, 0}, "create": {1, 0, 2}} {
		stdout, stderr, code := importInto(t, s, input, "--dry-run", "--op", op)
		var got importCount
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || [3]int{got.Created, got.Replaced, got.Existed} != want {
			t.Errorf("%s: exit %d, %v, %s %s", op, code, err, stdout, stderr)
		}
		if f := got.Forecast; f == nil || op == "upsert" && (f.Due != 2 || f.Never != 1 || f.Until-f.Now != day || f.Buckets[0].Due+f.Buckets[1].Due < 1) || op == "create" && (f.Due != 1 || f.Until-f.Now != 3600) {
			t.Errorf("%s: %+v", op, f)
		}
	}
	if asked := s.lastAsked(false); strings.Contains(asked, "upsert") || strings.Contains(asked, "create") {
		t.Error(asked)
	}
}

// TestImportForecast: each deadline is in the bucket it is in, and the span shown is the
// shortest that holds all.
func TestImportForecast(t *testing.T) {
	const now = 1_431_857_103
	for _, deadline := range []int64{0, 1, 3599, 3600, day - 1, day, 7*day - 1, 30 * day, 365*day - 1, 365 * day} {
		var f importForecast
		f.begin(now)
		f.add(schema.Deadline{At: now + deadline, Rule: schema.RuleDocument})
		f.add(schema.Deadline{})
		got := f.result(client.CollectionInfo{Name: "orders"})
		i := slices.IndexFunc(importSpans[:], func(span int64) bool { return deadline < span })
		if i < 0 {
			if got.Later != 1 || got.Due != 0 || got.Until != now+365*day {
				t.Errorf("%d: %+v", deadline, got)
			}
			continue
		}
		if got.Until != now+importSpans[i] || got.Due != 1 || got.Later != 0 || got.Never != 1 || got.Documents != 2 {
			t.Errorf("%d: %+v", deadline, got)
		}
		for _, b := range got.Buckets {
			if in := b.From <= now+deadline && now+deadline < b.Until; (b.Due == 1) != in {
				t.Errorf("%d: %+v", deadline, b)
			}
		}
	}
}

// TestWithout: a member is left out where it is, and only there.
func TestWithout(t *testing.T) {
	for _, c := range []struct{ path, in, want string }{
		{"/a", `{"a":1,"b":{"a":2}}`, `{"b":{"a":2}}`},
		{"/b/a", `{"a":1,"b":{"a":2,"c":[1, 2]}}`, `{"a":1,"b":{"c":[1, 2]}}`},
		{"/b/a/x", `{"b":{"a":2}}`, `{"b":{"a":2}}`},
		{"/b/0", `{"b":[1]}`, `{"b":[1]}`},
		{"/q\"/x~1y", `{"q\"":{"x/y":1,"z":2}}`, `{"q\"":{"z":2}}`},
	} {
		path, err := values.ParsePointer(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(without(values.Value(c.in), path)); got != c.want {
			t.Errorf("%s without %s: %s, want %s", c.in, c.path, got, c.want)
		}
	}
}
