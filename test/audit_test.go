package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// auditReport is the part of the output of `lapse audit --json` that the test reads.
type auditReport struct {
	OK       bool              `json:"ok"`
	Complete bool              `json:"complete"`
	Events   uint64            `json:"events"`
	Types    map[string]uint64 `json:"types"`
	Expired  uint64            `json:"expired"`
	Missing  uint64            `json:"missing"`
	Found    map[string]uint64 `json:"found"`
	Findings []struct {
		Seq        uint64 `json:"seq"`
		Rule       string `json:"rule"`
		Collection string `json:"collection"`
		ID         string `json:"id"`
		Message    string `json:"message"`
	} `json:"findings"`
}

// audited parses the output of `lapse audit --json`, which must end with code.
func audited(t testing.TB, r harness.Result, code int) (report auditReport) {
	t.Helper()
	if r.Code == code && code == 0 && r.Stderr != "" {
		t.Errorf("it says %q", r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Exits(code).Stdout), &report); err != nil {
		t.Fatalf("%s: %v", r.Stdout, err)
	}
	if report.OK != (code == 0) || report.OK != (len(report.Findings) == 0) {
		t.Errorf("exit %d with %s", code, r.Stdout)
	}
	return report
}

// TestAudit: the log of a server that was killed passes the audit, live and exported; a
// log with a changed event does not.
func TestAudit(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	s.Run("collection", "create", "orders", `{"defaultTtl":1}`).OK()
	s.Run("collection", "create", "carts", `{"defaultTtl":-1,"previousImages":false}`).OK()
	for i := range 5 {
		s.Run("document", "upsert", "orders", fmt.Sprint("o", i), `{"n":1}`).OK()
		s.Run("document", "upsert", "carts", fmt.Sprint("c", i), `{"ttl":2}`).OK()
	}
	s.Run("document", "create", "carts", "kept", `{}`).OK()
	s.Run("document", "patch", "carts", "kept", `{"n":2}`).OK()
	s.Kill()
	s.Restart()
	nc := dial(t, s)
	// Poll status, since few audits are allowed per second: each has its consumers.
	expired := func() bool { return askStatus(t, nc).PendingExpiry+askStatus(t, nc).Overdue == 0 }
	eventually(t, "everything expired", expired)
	s.Run("document", "create", "orders", "o1", `{"n":2}`).OK()
	s.Run("document", "delete", "carts", "kept").OK()
	eventually(t, "the last one expired", expired)
	live := audited(t, s.Run("audit", "--json"), 0)
	if !live.Complete || live.Types["WriterStarted"] < 2 || live.Types["DocumentExpired"] != 11 {
		t.Errorf("the live log is %+v", live)
	}
	if out := s.Run("audit").OK(); !strings.Contains(out, "11 expired, 0 pending, 0 missing") {
		t.Errorf("for people it is\n%s", out)
	}

	text := s.Run("export").OK()
	file := func(lines []string) harness.Result {
		name := filepath.Join(t.TempDir(), "log.jsonl")
		if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		return harness.Run(t, nil, "audit", name, "--json")
	}
	lines := harness.Lines(text)
	if report := audited(t, file(lines), 0); report.Expired != 11 || report.Events != uint64(len(lines)) {
		t.Errorf("the exported log is %+v", report)
	}
	if report := audited(t, harness.Run(t, strings.NewReader(text), "audit", "--json", "-"), 0); report.Expired != 11 {
		t.Errorf("the piped log is %+v", report)
	}

	events := parseEvents(t, text)
	first := slices.IndexFunc(events, func(e event) bool { return e.Type == "DocumentExpired" && e.ID == "o1" })
	e := events[first]
	for rule, spoilt := range map[string][]string{
		"missing":  slices.Delete(slices.Clone(lines), first, first+1),
		"double":   slices.Insert(slices.Clone(lines), first, lines[first]),
		"deadline": spoiltLine(lines, first, fmt.Sprintf(`"deadline":%d`, e.Deadline), fmt.Sprintf(`"deadline":%d`, e.Deadline+1)),
		"ttl":      spoiltLine(lines, first, `"ttl":1`, `"ttl":2`),
		"rule":     spoiltLine(lines, first, `"rule":"collection"`, `"rule":"document"`),
		"body":     spoiltLine(lines, first, `"n":1`, `"n":3`),
		"foreign":  spoiltLine(lines, first, "DocumentExpired", "DocumentLapsed"),
		"life":     spoiltLine(lines, first, `"id":"o1"`, `"id":"o9"`),
	} {
		report := audited(t, file(spoilt), 1)
		if report.Found[rule] == 0 {
			t.Errorf("spoilt against %s, it says %+v", rule, report.Findings)
		}
		if f := report.Findings[0]; f.Seq != e.Seq && f.Seq != e.Previous {
			t.Errorf("spoilt against %s at %d, it says %+v", rule, e.Seq, f)
		}
	}
}

// TestAuditSimulated: the output of simulate passes the audit.
func TestAuditSimulated(t *testing.T) {
	t.Parallel()
	_, lines := readHits(t)
	log := harness.Run(t, bytes.NewReader(sessionsInput(lines, 1800)), "simulate", "-").OK()
	if report := audited(t, harness.Run(t, strings.NewReader(log), "audit", "-", "--json"), 0); report.Expired != 3052 {
		t.Errorf("the audit says %+v", report)
	}
}

func spoiltLine(lines []string, i int, was, is string) []string {
	lines = slices.Clone(lines)
	lines[i] = strings.ReplaceAll(lines[i], was, is)
	return lines
}
