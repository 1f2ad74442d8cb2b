package importer

import (
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestMisplaced: lines that lapse prints for other commands, objects of several lines and
// tables are told from documents, by the first lines only.
func TestMisplaced(t *testing.T) {
	const event = `{"seq":4,"time":"2015-05-17T10:05:03.000Z","type":"DocumentExpired","collection":"sessions","id":"a"}`
	for _, row := range []struct {
		number int
		text   string
		want   string
	}{
		{1, event, "line 1 is an event of a log"},
		{20, event, "line 20 is an event of a log"},
		{21, event, ""},
		{1, `{"id":"a","seq":4,"time":"now","type":"order","collection":"c"}`, ""},
		{1, `{"id":"a","seq":4,"type":"DocumentExpired"}`, ""},
		{1, `{"at":"2015-05-17T10:05:03Z","op":"document.upsert","collection":"c","id":"a","body":{}}`, "line 1 is a mutation"},
		{1, `{"at":"2015-05-17T10:05:03Z","op":"sale","collection":"c","id":"a"}`, ""},
		{1, `{"line":3,"code":400,"error":"bad_ttl","message":"no","document":{"id":"a"}}`, "line 1 is a refused line"},
		{1, `{"line":3,"code":400,"error":"bad_request","message":"no","text":"x"}`, "line 1 is a refused line"},
		{1, `{"line":3,"code":400,"error":"paper jam","message":"no","id":"a"}`, ""},
		{1, `{`, "have several lines"},
		{1, `{"id":"a","list":[`, "have several lines"},
		{1, `{"id":"a",`, "have several lines"},
		{2, `{`, ""},
		{1, `{"id":"cut`, ""},
		{1, `id,total`, "is a table"},
		{1, `"id";"the total"`, "is a table"},
		{1, "id\ttotal\tend", "is a table"},
		{1, `id`, ""},
		{1, `not JSON`, ""},
		{2, `a,5`, ""},
		{1, `"id"`, ""},
		{1, `{"id":"a"}`, ""},
	} {
		got := ""
		if err := misplaced(schema.Line{Number: row.number, Text: []byte(row.text)}, row.number == 1); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, row.want) || (row.want == "") != (got == "") {
			t.Errorf("line %d, %s: %s", row.number, row.text, got)
		}
	}
}
