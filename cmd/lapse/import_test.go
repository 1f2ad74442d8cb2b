package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client/importer"
	"github.com/lapsedb/lapse/schema"
)

// importInto runs lapse import against a stand-in.
func importInto(t *testing.T, s *standin, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return importFrom(t, s, strings.NewReader(input), args...)
}

func importFrom(t *testing.T, s *standin, stdin io.Reader, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(stdin, &out, &errs)
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
	if code != 1 || stderr != "lapse: 5 of 5 lines refused: they are in "+rejects+"\n" {
		t.Errorf("exit %d, %s", code, stderr)
	}
	text, err := os.ReadFile(rejects)
	check(t, err)
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
	stdin, err := os.Open(rejects)
	check(t, err)
	defer stdin.Close()
	link := rejects + ".link"
	check(t, os.Link(rejects, link))
	for _, args := range [][]string{{"-", "--rejects", rejects}, {"--rejects", link}, {link, "--rejects", rejects}, {os.DevNull, "--rejects", rejects}} {
		if _, stderr, code := importFrom(t, s, stdin, args...); code != 2 || !strings.Contains(stderr, "is the file to import") {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
	if after, err := os.ReadFile(rejects); err != nil || !bytes.Equal(after, text) {
		t.Errorf("the file changed (%v)", err)
	}
	if _, stderr, _ := importInto(t, s, strings.Repeat("x\n", 12)); strings.Count(stderr, "\n") != mostRejectsShown+1 || !strings.Contains(stderr, "--rejects FILE keeps them all") {
		t.Error(stderr)
	}
}

// TestImportWithoutMoments: an import says that no document has the member of --expires; some
// may lack it.
func TestImportWithoutMoments(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders","defaultTtl":7200}`, false)
	s.answer("batch.orders", 200, `{"results":[{"code":404,"body":{"code":404,"error":"document_not_found","message":"no"}},{"code":404,"body":{"code":404,"error":"document_not_found","message":"no"}}]}`, false)
	for input, says := range map[string]bool{
		`{"id":"a","meta":{"end":3000000000}}` + "\n" + `{"id":"b"}`: true,
		`{"id":"a","end":3000000000}` + "\n" + `{"id":"b"}`:          false,
		`{"id":"a","end":null}` + "\n" + `{"id":"b"}`:                false,
	} {
		_, stderr, code := importInto(t, s, input, "--dry-run", "--expires", "/end")
		if code != 0 || strings.Contains(stderr, "lapse: none of the documents has a moment at /end") != says {
			t.Errorf("%s: exit %d, %s", input, code, stderr)
		}
	}
}

// TestImportSaysAgain: what was sent twice since the first answer was lost is counted.
func TestImportSaysAgain(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders"}`, false)
	s.answer("batch.orders", 504, `{"code":504,"error":"timeout","message":"lost"}`, false)
	s.answer("batch.orders", 200, `{"results":[{"code":200,"body":{"id":"a"}},{"code":201,"body":{"id":"b"}}]}`, true)
	stdout, stderr, code := importInto(t, s, `{"id":"a"}`+"\n"+`{"id":"b"}`)
	if code != 0 || !strings.Contains(stdout, `"created":1,"replaced":1,"again":1,`) {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}

// TestImportOfOpenPipe: lines that have come are stored, and refused ones are in the file,
// although the input goes on.
func TestImportOfOpenPipe(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders"}`, false)
	s.answer("batch.orders", 200, `{"results":[{"code":201,"body":{"id":"a"}}]}`, false)
	rejects := filepath.Join(t.TempDir(), "rejects.jsonl")
	in, more := io.Pipe()
	go func() {
		defer more.Close()
		_, _ = io.WriteString(more, `{"id":"a"}`+"\n[]\n")
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			text, _ := os.ReadFile(rejects)
			if strings.HasSuffix(string(text), "\n") && strings.Contains(s.lastAsked(true), `"upsert"`) {
				return
			}
			if time.Now().After(end) {
				t.Errorf("asked %s, refused %s", s.lastAsked(true), text)
				return
			}
		}
	}()
	stdout, stderr, code := importFrom(t, s, in, "--rejects", rejects)
	if code != 1 || !strings.Contains(stdout, `"created":1`) || !strings.Contains(stderr, "1 of 2 lines refused") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
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
		var got importer.Count
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

// TestWrongFile: a file that is no lines of documents is refused in one line that says what it
// is, and nothing of it is stored.
func TestWrongFile(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders"}`, false)
	event := `{"seq":1,"time":"2015-05-17T10:05:03.000Z","type":"CollectionCreated","collection":"orders","body":{}}` + "\n"
	for input, want := range map[string]string{
		strings.Repeat(event, 50):                                         "line 1 is an event of a log, which would be stored as a document: ",
		"[\n" + strings.Repeat(`{"id":"a"},`+"\n", 50) + `{"id":"b"}]`:    "the file is a JSON array: ",
		strings.Repeat("{\n  \"id\": \"a\"\n}\n", 50):                     "the objects of the file have several lines: ",
		"id,total\n" + strings.Repeat("a,5\n", 50):                        "the file is a table, as of CSV: ",
		"\x1F\x8B\x08" + strings.Repeat("\n", 50):                         "the file is compressed by gzip: ",
		"\xFF\xFE" + strings.Repeat("{\x00}\x00\n\x00", 50):               "the file is in UTF-16: ",
		strings.Repeat(`{"at":"x","op":"document.get"}`+"\n", 12) + event: "", // refused line by line, up to the event
	} {
		s.reset()
		_, stderr, code := importInto(t, s, input)
		if want == "" {
			want = "; done up to line 12\n"
		} else if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "lapse: ") {
			t.Errorf("%.30q: %s", input, stderr)
		}
		if asked := s.lastAsked(true); code != exitFailed || !strings.Contains(stderr, want) || strings.Contains(asked, "batch") {
			t.Errorf("%.30q: exit %d, %s, asked %s", input, code, stderr, asked)
		}
	}
}

// TestByteOrderMark: no command that reads JSON from a file or standard input minds the mark
// that some editors put at its beginning.
func TestByteOrderMark(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders"}`, false)
	s.answer("batch.orders", 200, `{"results":[{"code":201}]}`, false)
	s.answer("document.upsert.orders.a", 201, `{"id":"a"}`, false)
	s.answer("collection.create.orders", 201, `{"id":"orders"}`, false)
	server := " --server " + s.server.ClientURL()
	event := `{"seq":1,"time":"2015-05-17T10:05:03.000Z","type":"CollectionCreated","collection":"orders","body":{}}`
	for command, input := range map[string]string{
		"import orders -" + server:            `{"id":"a"}`,
		"document upsert orders a -" + server: `{"id":"a"}`,
		"collection create orders -" + server: `{}`,
		"replay -":                            event,
		"audit - --partial":                   event,
		"simulate -":                          `{"at":"2015-05-17T10:05:03Z","op":"collection.create","collection":"orders"}`,
	} {
		var out bytes.Buffer
		s.reset()
		code := newApp(strings.NewReader(schema.ByteOrderMark+input+"\n"), &out, &out).run(t.Context(), strings.Fields(command))
		if code != exitDone || strings.Contains(s.lastAsked(true), schema.ByteOrderMark) {
			t.Errorf("lapse %s: exit %d, %s", command, code, &out)
		}
	}
}
