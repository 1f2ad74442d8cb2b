package asyncapi_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/conform"
)

// Goldens write T for times, which differ from run to run, and leave out collection
// properties that have their default.
var (
	someTime   = regexp.MustCompile(`"time":T\b`)
	someSecond = regexp.MustCompile(`"_ts":T\b`)
	collection = regexp.MustCompile(`("type":"Collection[A-Za-z]+",.*"body":)(\{.*\})\}$`)
)

// TestGoldens: every event in a golden or in a test's log conforms to its description.
// Other messages of wire goldens are checked where they are recorded.
func TestGoldens(t *testing.T) {
	files, lines := 0, 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.Contains(path, "testdata") {
			return err
		}
		switch filepath.Ext(path) {
		case ".txt", ".jsonl", ".ndjson":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		before := lines
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, `{"seq":`) || strings.Contains(line, `"collection":"_"`) {
				continue
			}
			event := whole(t, line)
			if _, _, err := schema.ParseEventLine([]byte(event)); err != nil {
				continue // an invalid event of a test, or a snapshot
			}
			lines++
			if err := conform.Schema("Event", []byte(event)); err != nil {
				t.Errorf("%s: %s\n%v", path, line, err)
			}
		}
		if lines > before {
			files++
		}
		return nil
	})
	must(t, err)
	if files < 10 || lines < 200 {
		t.Errorf("only %d events in %d files were found", lines, files)
	}
}

// whole restores the values that a golden leaves out of an event.
func whole(t *testing.T, line string) string {
	t.Helper()
	line = someTime.ReplaceAllString(line, `"time":"2026-01-01T00:00:00.000Z"`)
	line = someSecond.ReplaceAllString(line, `"_ts":1`)
	m := collection.FindStringSubmatchIndex(line)
	if m == nil {
		return line
	}
	properties := map[string]any{
		"defaultTtl":     nil,
		"indexingPolicy": map[string]any{"indexingMode": "consistent", "includedPaths": []any{}},
		"previousImages": true,
	}
	if err := json.Unmarshal([]byte(line[m[4]:m[5]]), &properties); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	body, err := json.Marshal(properties)
	must(t, err)
	return line[:m[4]] + string(body) + "}"
}
