package audit

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/test/stress"

	"github.com/lapsedb/lapse/schema"
)

func readLines(t testing.TB, text []byte) (Report, error) {
	t.Helper()
	a, err := New(Options{FS: vfs.NewMem()})
	must(t, err)
	defer a.Close()
	if err := a.Lines(t.Context(), bytes.NewReader(text), nil); err != nil {
		return Report{}, err
	}
	report, err := a.Finish()
	must(t, err)
	return report, nil
}

// TestLines: a line without a readable sequence is an error with its number; a line with
// one that is no valid event is a finding.
func TestLines(t *testing.T) {
	const created = `{"seq":2,"time":"2015-05-17T10:05:00.000Z","type":"CollectionCreated","collection":"orders","body":{"defaultTtl":30}}` + "\n"
	const strange = `{"seq":3,"time":"2015-05-17T10:05:00.000Z","type":"DocumentExpired","collection":"orders","id":"a","previous":2,"deadline":1,"ttl":1,"rule":"none"}` + "\n"
	for text, want := range map[string]string{
		"":                                       "",
		"\n" + created + "\n":                    "",
		created + "hello\n":                      "line 2 is no event: byte 0: 'h' found, an object expected",
		created + `{"seq":3,`:                    "line 2 is no event: byte 9: the JSON ends early",
		`{"at":1}`:                               "line 1 is no event: it has no seq",
		strings.Repeat("x", schema.MaxLineBytes): "line 1 is longer than",
	} {
		report, err := readLines(t, []byte(text))
		if want == "" && (err != nil || report.Count() > 0) || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%.100q: %v, %v, want %s", text, report.Findings, err, want)
		}
	}
	report, err := readLines(t, []byte(created+strange))
	if err != nil || report.Found[Foreign] != 1 || report.Findings[0].Seq != 3 {
		t.Errorf("got %+v, %v", report, err)
	}
}

// TestFindingsAreBounded: the audit keeps some findings of each rule and counts the rest.
func TestFindingsAreBounded(t *testing.T) {
	log := history(t, stress.Rand(t), 50)
	a, err := New(Options{FS: vfs.NewMem(), Findings: 3})
	must(t, err)
	defer a.Close()
	for range 10 {
		a.Foreign(7, errNoMutation)
		must(t, a.Event(&log[0]))
	}
	report, err := a.Finish()
	if err != nil || report.Found[Foreign] != 10 {
		t.Fatalf("%+v, %v", report, err)
	}
	kept := make(map[Rule]int)
	for _, f := range report.Findings {
		kept[f.Rule]++
	}
	if kept[Foreign] != 3 || len(report.Findings) >= int(report.Count()) {
		t.Errorf("%v kept of %v", kept, report.Found)
	}
}

// FuzzLines: for any input, the audit ends with a report or an error.
func FuzzLines(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2)) // the same seeds in each fuzzing process
	for range 5 {
		var text []byte
		for _, e := range exported(history(f, r, 30)) {
			text = append(e.AppendJSON(text), '\n')
		}
		f.Add(text)
	}
	f.Add([]byte("{}\n[]\nnull"))
	f.Add([]byte(`{"seq":18446744073709551615,"time":"9999-12-31T23:59:59.999Z","type":"CollectionDeleted","collection":"a","cause":"mutations/18446744073709551615"}` + "\n" +
		`{"seq":1,"time":"0000-01-01T00:00:00Z","type":"CollectionCreated","collection":"a","body":{"defaultTtl":2147483647}}` + "\n" +
		`{"seq":2,"time":"0000-01-01T00:00:00.001Z","type":"DocumentReplaced","collection":"a","id":"a","previous":18446744073709551615,"body":{"ttl":2147483647}}` + "\n" +
		`{"seq":3,"time":"9999-12-31T23:59:59.999Z","type":"DocumentExpired","collection":"a","id":"a","previous":2,"deadline":-9223372036854775808,"ttl":1,"rule":"collection"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		report, err := readLines(t, text)
		if err == nil && report.Count() > 0 != (len(report.Findings) > 0) {
			t.Errorf("%d findings, of which %d are kept", report.Count(), len(report.Findings))
		}
	})
}
