package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/fatih/color"

	"github.com/lapsedb/lapse/schema"
)

// palette paints text, if it is true.
type palette bool

func (p palette) paint(text string, attributes ...color.Attribute) string {
	if !p {
		return text
	}
	c := color.New(attributes...)
	c.EnableColor() // whether to is decided already, for our own stream
	return c.Sprint(text)
}

func (p palette) faint(text string) string { return p.paint(text, color.Faint) }

// eventType paints a type by what it does to a document.
func (p palette) eventType(t schema.EventType) string {
	text := fmt.Sprintf("%-18s", t)
	switch t {
	case schema.DocumentCreated:
		return p.paint(text, color.FgGreen)
	case schema.DocumentReplaced:
		return p.paint(text, color.FgCyan)
	case schema.DocumentDeleted:
		return p.paint(text, color.FgYellow)
	case schema.DocumentExpired:
		return p.paint(text, color.FgMagenta)
	case schema.MutationRejected:
		return p.paint(text, color.FgRed)
	}
	return p.paint(text, color.FgBlue)
}

// pretty indents a JSON value and paints its member names and strings. What is
// not JSON comes back as it is, less what would steer the terminal.
func (p palette) pretty(body []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, body, "", "  ") != nil {
		return []byte(printable(string(body)))
	}
	text := printable(b.String())
	if !p {
		return []byte(text)
	}
	var out strings.Builder
	for text != "" {
		start := strings.IndexByte(text, '"')
		if start < 0 {
			break
		}
		out.WriteString(text[:start])
		text = text[start:]
		end := 1
		for text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		attribute := color.FgGreen
		if strings.HasPrefix(text[end+1:], ": ") {
			attribute = color.FgBlue
		}
		out.WriteString(p.paint(text[:end+1], attribute))
		text = text[end+1:]
	}
	out.WriteString(text)
	return []byte(out.String())
}

// printable writes control characters, with which a document could steer the
// terminal, as JSON escapes.
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
