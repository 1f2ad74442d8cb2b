package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	color "github.com/jedib0t/go-pretty/v6/text"

	"github.com/lapsedb/lapse/schema"
)

// palette colours text if it is true. Commands pass it along instead of asking for the
// terminal again, so that a text has its colours everywhere or nowhere.
type palette bool

// paint returns text in colors. The sequences have no width: measure with textWidth.
func (p palette) paint(text string, colors ...color.Color) string {
	if !p {
		return text
	}
	return color.Escape(text, color.Colors(colors).EscapeSeq())
}

func (p palette) faint(text string) string { return p.paint(text, color.Faint) }

// eventType colours a type by its effect on the document, and pads it to the longest name.
// Padding after colouring would count the escape sequences.
func (p palette) eventType(t schema.EventType) string {
	text := fmt.Sprintf("%-18s", t)
	switch t {
	// Green begins a life, magenta and yellow end or restrict it, cyan goes on with it, red
	// is a refusal; blue is what concerns a collection.
	case schema.DocumentCreated:
		return p.paint(text, color.FgGreen)
	case schema.DocumentReplaced, schema.DocumentTouched:
		return p.paint(text, color.FgCyan)
	case schema.DocumentExpiring, schema.DocumentDeleted, schema.DocumentHeld, schema.DocumentReleased:
		return p.paint(text, color.FgYellow)
	case schema.DocumentExpired:
		return p.paint(text, color.FgMagenta)
	case schema.MutationRejected:
		return p.paint(text, color.FgRed)
	}
	return p.paint(text, color.FgBlue)
}

// jsonString is a string of valid JSON, with what follows the name of a member.
var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(: )?`)

// pretty indents a JSON value and paints its member names and strings. It returns
// text that is not JSON as it is, with control characters escaped.
func (p palette) pretty(body []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, body, "", "  ") != nil {
		return []byte(printable(string(body)))
	}
	text := printable(b.String())
	if !p {
		return []byte(text)
	}
	return []byte(jsonString.ReplaceAllStringFunc(text, func(s string) string {
		if name, ok := strings.CutSuffix(s, ": "); ok {
			return p.paint(name, color.FgBlue) + ": "
		}
		return p.paint(s, color.FgGreen)
	}))
}

// printable escapes control characters as in JSON, so that a document cannot send escape
// sequences to the terminal: to move the cursor, to set the title, or to make a refused
// line look accepted. The line end stays. C1 controls (U+0080 to U+009F) are control
// characters for unicode.IsControl, too.
func printable(s string) string {
	control := func(r rune) bool { return r != '\n' && unicode.IsControl(r) }
	if strings.IndexFunc(s, control) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if control(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
