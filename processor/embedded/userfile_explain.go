package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ConfigError is an error in Options, one line, which names the flag to change, or the line
// of the NATS configuration file. lapse serve exits with 2.
type ConfigError struct{ message string }

func (e *ConfigError) Error() string { return e.message }

// place is a line of a configuration file; the zero value is none.
type place struct {
	file string
	line int
}

// errorf returns a ConfigError about the line: "--nats-config lapse.conf:12: …".
func (p place) errorf(format string, args ...any) error {
	return &ConfigError{fmt.Sprintf("--nats-config %s:%d: %s", p.file, p.line, fmt.Sprintf(format, args...))}
}

// token is a value of a parsed file, with its place: what NATS's package conf returns,
// whose type is private.
type token interface {
	Value() any
	Line() int
	SourceFile() string
	IsUsedVariable() bool
}

// unwrap returns a parsed value and its line; a value without a line, such as one from the
// environment, has its parent's.
func unwrap(v any, above place) (any, place) {
	if t, ok := v.(token); ok {
		return t.Value(), place{t.SourceFile(), t.Line()}
	}
	return v, above
}

// inOrder iterates over a map in the order of its lines, so that the first error of a file
// is the one that is reported, at each run the same.
func inOrder(m map[string]any) iter.Seq2[string, any] {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		_, at := unwrap(m[a], place{})
		_, other := unwrap(m[b], place{})
		return cmp.Or(cmp.Compare(at.line, other.line), strings.Compare(a, b))
	})
	return func(yield func(string, any) bool) {
		for _, key := range keys {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

var parseLine = regexp.MustCompile(`^Parse error on line (\d+): '(.*)'$`)

// parseError says where a file cannot be parsed.
func parseError(file string, err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	if parts := parseLine.FindStringSubmatch(text); parts != nil {
		return fmt.Sprintf("--nats-config %s:%s: %s", file, parts[1], parts[2])
	}
	return fmt.Sprintf("--nats-config %s: %s", file, strings.TrimPrefix(text, "open "+file+": "))
}

var configLine = regexp.MustCompile(`^:(\d+):\d+: (.*)$`)

// explain returns NATS's first error about the configuration, with its place. NATS numbers
// the lines of the text that it was given; w has for each of them the line of the user's
// file it came from. Lines that are lapse's own have none: such an error is at the first
// line of the file.
func (w *written) explain(u *userFile, err error) error {
	all := []error{err}
	if several, ok := errors.AsType[interface {
		error
		Errors() []error
	}](err); ok && len(several.Errors()) > 0 {
		all = several.Errors()
	}
	var first place
	var text string
	for _, cause := range all {
		at, what := u.place, strings.ReplaceAll(cause.Error(), "\n", " ")
		if parts := configLine.FindStringSubmatch(what); parts != nil {
			if n, _ := strconv.Atoi(parts[1]); n > 0 && n <= len(w.places) && w.places[n-1] != (place{}) {
				at = w.places[n-1]
			}
			what = parts[2]
		}
		if text == "" || at.line < first.line {
			first, text = at, what
		}
	}
	return first.errorf("%s", text)
}
