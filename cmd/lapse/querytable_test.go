package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/stress"
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
	stress.OneGoroutine(t)
	var members []string
	for i := range mostColumns + 10 {
		members = append(members, fmt.Sprintf(`"m%d":"生命"`, i))
	}
	document := json.RawMessage("{" + strings.Join(members, ",") + `,"id":"x"}`)
	var out bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &out)
	a.isTerminal, a.colour, a.width = func(any) bool { return true }, false, func(any) int { return 200 }
	p := newDocumentPrinter(&output{app: a}, momentFlags{})
	for range mostRows + 1 {
		check(t, p.print([]client.Item[json.RawMessage]{{Value: document}}))
	}
	if rows := strings.Count(out.String(), "\n"); rows != mostRows+1 {
		t.Errorf("%d lines before the end", rows)
	}
	check(t, p.end())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != mostRows+1+3 {
		t.Fatalf("%d lines", len(lines))
	}
	if title := strings.Fields(lines[mostRows+1]); title[0] != "id" || len(title) != len(strings.Fields(lines[mostRows+2])) {
		t.Errorf("titles %v", title)
	}
	if footer := lines[mostRows+3]; !strings.Contains(footer, "columns left out") {
		t.Errorf("at the end %q", footer)
	}
}

// TestQueryOfAPart: a file or program that gets a part of the documents hears of it by the exit
// code, unless it asked for a part.
func TestQueryOfAPart(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders"}`, false)
	documents := strings.Repeat(`,{"id":"a"}`, 100)[1:]
	s.answer("query.orders", 200, `{"documents":[`+documents+`],"cursor":"Cq"}`, false)
	for _, row := range []struct {
		command  string
		terminal bool
		code     int
	}{
		{"query orders", false, exitFailed},
		{"query orders --explain", false, exitFailed},
		{"query orders --cursor Cp", false, exitFailed},
		{"due orders", false, exitFailed},
		{"document list orders", false, exitFailed},
		{"query orders --limit 100", false, exitDone},
		{"document list orders -n 100", false, exitDone},
		{"query orders", true, exitDone},
		{"query orders --json", true, exitDone},
	} {
		var out, errs bytes.Buffer
		a := newApp(strings.NewReader(""), &out, &errs)
		a.isTerminal = func(any) bool { return row.terminal }
		code := a.run(t.Context(), append(strings.Fields(row.command), "--server", s.server.ClientURL()))
		if last := errs.String()[strings.LastIndex("\n"+strings.TrimSpace(errs.String()), "\n"):]; code != row.code || strings.Count(out.String(), "a") != 100 || !strings.HasPrefix(last, "lapse: more documents match") {
			t.Errorf("lapse %s, terminal %t: exit %d, %s", row.command, row.terminal, code, &errs)
		}
	}
}
