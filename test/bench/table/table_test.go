package main

import (
	"os"
	"testing"
)

// TestPage: the table in docs/benchmarks.md is that of table.json.
func TestPage(t *testing.T) {
	all, err := read("table.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../" + pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Full.Rows) == 0 || all.Full.into(string(page)) != string(page) {
		t.Error("docs/benchmarks.md is not up to date: run make bench")
	}
}
