package embedded

import (
	"fmt"
	"strconv"
	"strings"
)

// Parsed values as text again, one value a line, so that a line number in an error of NATS
// leads back to the user's file:
//
//	"accounts": {          lapse.conf:1
//	"APP": {               app.conf:1
//	"users": [             app.conf:2

// written is a configuration as text, with the place of each line in the user's files.
type written struct {
	strings.Builder
	places []place
}

func (w *written) line(text string, at place) {
	w.WriteString(text + "\n")
	w.places = append(w.places, at)
}

// write writes a value after what begins its line, such as the key. The keys of a map come
// in the order of their lines. above is the place of what has no line of its own.
func (w *written) write(begin string, v any, above place) {
	v, at := unwrap(v, above)
	switch v := v.(type) {
	case map[string]any:
		w.line(begin+"{", at)
		for key, element := range inOrder(v) {
			w.write(quoted(key)+": ", element, at)
		}
		w.line("}", at)
	case []any:
		w.line(begin+"[", at)
		for _, element := range v {
			w.write("", element, at)
		}
		w.line("]", at)
	case string:
		w.line(begin+quoted(v), at)
	case float64:
		w.line(begin+strconv.FormatFloat(v, 'f', -1, 64), at)
	default: // int64 and bool
		w.line(begin+fmt.Sprint(v), at)
	}
}

// quoted writes a string as NATS reads it: in double quotes, with \" and \\, and control
// characters as \xHH.
func quoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
