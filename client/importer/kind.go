package importer

import (
	"fmt"
	"regexp"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// judged is the number of lines by which a file is judged: later ones are refused by themselves.
const judged = 20

// lineKinds are the kinds of lines that lapse prints and that are no documents. Each kind
// has members that all of its lines have, and a test that documents of users hardly pass:
// the members alone could be somebody's.
var lineKinds = []struct {
	members []string // that all of the kind have
	is      func(line values.Value) bool
	text    string
}{
	{[]string{"seq", "time", "type", "collection"}, func(line values.Value) bool {
		return schema.ParseEventType(string(line.At([]string{"type"}).Text())) != schema.NoEvent
	}, "an event of a log, which would be stored as a document: copy documents by `lapse query COLL --all --deadlines | lapse import NEW - --expires /_deadline`, ask an exported log by `lapse replay FILE --query COLL`"},
	{[]string{"at", "op", "collection"}, func(line values.Value) bool {
		return schema.ParseOp(string(line.At([]string{"op"}).Text())) != schema.NoOp
	}, "a mutation, which would be stored as a document: `lapse simulate FILE` applies mutations"},
	{[]string{"line", "code", "error", "message"}, func(line values.Value) bool {
		return line.At([]string{"document"}).Kind() == values.Object || line.At([]string{"text"}).Kind() == values.String
	}, "a refused line, as --rejects keeps it: import the documents in it, as `jq -c .document FILE` prints them"},
}

// severalLines matches the first line of an object that has more. Such a file is JSON, but
// not one object a line.
var severalLines = regexp.MustCompile(`^\{$|^\{.*[{\[,]$`)

// header matches the first line of a table: names with the same character between them.
var header = regexp.MustCompile(`^"?[^",;\t{}\[\]]+"?(?:(?:,"?[^",;\t{}\[\]]+"?)+|(?:;"?[^",;\t{}\[\]]+"?)+|(?:\t"?[^",;\t{}\[\]]+"?)+)$`)

// misplaced returns a schema.FileError if a line shows that the file has no documents, one a
// line. A wrong file would otherwise become thousands of refused lines, or worse, of
// documents.
func misplaced(line schema.Line, first bool) error {
	switch {
	case line.Number > judged || len(line.Text) == 0:
		return nil
	case schema.CheckJSON(line.Text) == nil:
		for _, kind := range lineKinds {
			if has(line.Text, kind.members) && kind.is(line.Text) {
				return schema.FileError(fmt.Sprintf("line %d is %s", line.Number, kind.text))
			}
		}
	case first && severalLines.Match(line.Text):
		return schema.FileError("the objects of the file have several lines: give one JSON object a line, as `jq -c . FILE` prints them")
	case first && header.Match(line.Text):
		return schema.FileError("the file is a table, as of CSV: give one JSON object a line, as `mlr --icsv --ojsonl cat FILE` prints them")
	}
	return nil
}

func has(object values.Value, members []string) bool {
	for _, name := range members {
		if object.At([]string{name}).Kind() == values.Missing {
			return false
		}
	}
	return true
}
