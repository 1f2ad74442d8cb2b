package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/client"
)

func TestFit(t *testing.T) {
	for _, test := range []struct {
		widths      []int
		line        int
		shown, most int
	}{
		{[]int{3, 9, 9}, 25, 3, 25},
		{[]int{3, 9, 9}, 24, 2, 24},
		{[]int{3, 200, 9}, 80, 3, 64},
		{[]int{3, 20, 20}, 31, 3, 12},
		{[]int{3, 20, 20}, 30, 2, 30},
		{[]int{30, 9, 9}, 10, 1, 10},
		{nil, 80, 0, 80},
	} {
		if shown, most := fit(test.widths, test.line); shown != test.shown || most != test.most {
			t.Errorf("%v in %d: %d of at most %d, want %d of %d", test.widths, test.line, shown, most, test.shown, test.most)
		}
	}
}

// TestDocumentPrinterIsBounded: tables have a bounded size, whatever the number of
// documents and of their members.
func TestDocumentPrinterIsBounded(t *testing.T) {
	var members []string
	for i := range mostColumns + 10 {
		members = append(members, fmt.Sprintf(`"m%d":"生命"`, i))
	}
	document := json.RawMessage("{" + strings.Join(members, ",") + `,"id":"x"}`)
	var out bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &out)
	a.isTerminal, a.colour, a.width = func(any) bool { return true }, false, func(any) int { return 200 }
	p := newDocumentPrinter(&output{app: a})
	for range mostRows + 1 {
		if err := p.print([]client.Item[json.RawMessage]{{Value: document}}); err != nil {
			t.Fatal(err)
		}
	}
	if rows := strings.Count(out.String(), "\n"); rows != mostRows+1 {
		t.Errorf("%d lines before the end", rows)
	}
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != mostRows+1+3 {
		t.Fatalf("%d lines", len(lines))
	}
	if title := strings.Fields(lines[mostRows+1]); title[0] != "id" || len(title) != len(strings.Fields(lines[mostRows+2])) {
		t.Errorf("titles %v", title)
	}
	if footer := lines[mostRows+3]; !strings.Contains(footer, "column(s) left out") {
		t.Errorf("at the end %q", footer)
	}
}
