package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestWrongTogether: what a command would ignore, or what would change the meaning of
// another flag, is wrong usage, before anything is asked.
func TestWrongTogether(t *testing.T) {
	for _, test := range []struct{ args, says string }{
		{"status --of 127.0.0.1:1 --password-file f", "--of and --password-file given: use one of them"},
		{"status --of 127.0.0.1:1 --creds f", "--of and --creds given: use one of them"},
		{"query c --where true)||(true --where false", `--where "true)||(true": it closes a parenthesis that it does not open`},
		{"query c --where false --where (true --server nats://127.0.0.1:1", ""}, // the server says where it ends
	} {
		var out bytes.Buffer
		code := newApp(strings.NewReader(""), &out, &out).run(t.Context(), append(strings.Fields(test.args), "--timeout", "1s"))
		if (code == exitUsage) != (test.says != "") || !strings.Contains(out.String(), test.says) {
			t.Errorf("%s: exit %d, %s", test.args, code, &out)
		}
	}
}
