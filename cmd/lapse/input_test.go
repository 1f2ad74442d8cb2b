package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
)

// TestStandardInput: standard input is read for -, and by a command that needs a body and
// was given none. `collection create` refuses one that is offered and not read.
// Everything else leaves standard input to the loop that the command runs in.
func TestStandardInput(t *testing.T) {
	s := newStandin(t)
	for tail, reply := range map[string]string{
		"collection.create.c": `{}`, "collection.replace.c": `{}`, "collection.get.c": `{}`, "collection.delete.c": ``, "collection.list": `{"collections":[]}`,
		"document.create.c.a": `{}`, "document.replace.c.a": `{}`, "document.upsert.c.a": `{}`, "document.patch.c.a": `{}`,
		"document.get.c.a": `{}`, "document.delete.c.a": ``, "document.touch.c.a": `{}`, "document.hold.c.a": `{}`,
		"document.release.c.a": `{}`, "document.restore.c.a": `{}`,
		"query.c": `{"documents":[]}`, "forecast.c": `{}`, "history.c.a": `{"events":[]}`, "status": `{}`,
		"snapshot.create": `{}`, "snapshot.list": `{"snapshots":[]}`, "snapshot.verify.1": `{"sound":true}`,
	} {
		s.answer(tail, 200, reply, false)
	}
	const (
		pipe    = `{"a":1}` // a pipe with this text
		empty   = ""        // a pipe without any
		null    = os.DevNull
		nothing = "-" // what is asked without a body
		refused = "exit 2"
	)
	// By command: what the server is asked to store when standard input is pipe, empty or null.
	for command, want := range map[string][3]string{
		"collection create c":                  {refused, refused, nothing},
		"collection create c -":                {pipe, refused, refused},
		"collection create c {}":               {`{}`, `{}`, `{}`},
		"collection create c --default-ttl 60": {`{"defaultTtl":60}`, `{"defaultTtl":60}`, `{"defaultTtl":60}`},
		"collection replace c":                 {refused, refused, refused},
		"collection replace c -":               {pipe, refused, refused},
		"collection replace c {}":              {`{}`, `{}`, `{}`},
		"document create c a":                  {pipe, refused, refused},
		"document create c a -":                {pipe, refused, refused},
		"document create c a --ttl 60":         {`{"ttl":60}`, `{"ttl":60}`, `{"ttl":60}`},
		"document replace c a":                 {pipe, refused, refused},
		"document replace c a --ttl 60":        {refused, refused, refused},
		"document upsert c a":                  {pipe, refused, refused},
		"document upsert c a -":                {pipe, refused, refused},
		"document upsert c a {}":               {`{}`, `{}`, `{}`},
		"document upsert c a --ttl 60":         {`{"ttl":60}`, `{"ttl":60}`, `{"ttl":60}`},
		"document upsert c a - --ttl 60":       {`{"a":1,"ttl":60}`, refused, refused},
		"document upsert c a {} --ttl 60":      {`{"ttl":60}`, `{"ttl":60}`, `{"ttl":60}`},
		"document patch c a":                   {pipe, refused, refused},
		"document patch c a --ttl 60":          {`{"ttl":60}`, `{"ttl":60}`, `{"ttl":60}`},
	} {
		for i, text := range []string{pipe, empty, null} {
			stdin := inputOf(t, text)
			s.reset()
			code, complaint := runWith(t, s, stdin, command)
			unread, _ := io.ReadAll(stdin)
			got := refused
			if asked := strings.SplitN(s.lastAsked(true), "\n", 3); code == exitDone {
				got = nothing
				if len(asked) > 2 {
					got = strings.TrimSpace(asked[1])
				}
			} else if asked[0] != "" || code != exitUsage || strings.Count(complaint, "\n") != 1 {
				got = complaint
			}
			if got != want[i] {
				t.Errorf("%s, standard input %q: got %s, want %s", command, text, got, want[i])
			}
			if reads := got != refused && strings.Contains(got, `"a"`); text == pipe && !reads && string(unread) != pipe {
				t.Errorf("%s reads standard input", command)
			}
		}
	}
	for _, command := range []string{
		"collection get c", "collection delete c", "collection list",
		"document get c a", "document delete c a", "document touch c a", "document hold c a", "document release c a", "document restore c a",
		"query c", "query c --count", "due c", "forecast c", "history c a", "status", "export", "audit",
		"snapshot create", "snapshot list", "snapshot verify 1",
	} {
		stdin := inputOf(t, pipe)
		_, complaint := runWith(t, s, stdin, command)
		if unread, _ := io.ReadAll(stdin); string(unread) != pipe {
			t.Errorf("%s reads standard input: %s", command, complaint)
		}
	}
}

// inputOf returns a standard input: the null device, or a pipe with text.
func inputOf(t *testing.T, text string) *os.File {
	t.Helper()
	if text == os.DevNull {
		null, err := os.Open(os.DevNull)
		check(t, err)
		t.Cleanup(func() { null.Close() })
		return null
	}
	r, w, err := os.Pipe()
	check(t, err)
	t.Cleanup(func() { r.Close() })
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return r
}

func runWith(t *testing.T, s *standin, stdin io.Reader, command string) (code int, stderr string) {
	t.Helper()
	var complaint bytes.Buffer
	code = newApp(stdin, io.Discard, &complaint).run(t.Context(), append(strings.Fields(command), "--server", s.server.ClientURL()))
	return code, complaint.String()
}
