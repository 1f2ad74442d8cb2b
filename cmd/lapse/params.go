package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A parameter that a condition does not use is most likely misspelt, and the condition then
// compares with nothing: `--where 'doc.n > params.min' --param mni=5` would match no
// document, silently. The contract makes it exit 2. The server refuses the other half, a
// name that the condition uses and params lacks.
//
// The condition is CEL, and a client should not need a CEL parser for that. Tokens are
// enough, as long as doubt means "used": a false alarm would refuse a right command.
//
//	params.min  params["min"]     use min
//	size(params)                  may use any: no error
//	doc.params.min                uses none: params is a member of doc

// celToken matches a token of a CEL expression, or a comment. The order of the alternatives
// counts: comments before operators, raw strings (r"…", without escapes) before strings,
// triple quotes before single ones.
var celToken = regexp.MustCompile(`(?s)//[^\n]*|` +
	`[bB]?[rR](?:""".*?"""|'''.*?'''|"[^"]*"|'[^']*')|` +
	`[bB]?(?:"""(?:\\.|.)*?"""|'''(?:\\.|.)*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|` +
	`[A-Za-z_]\w*|\S`)

// nameToken matches a token that may be the name of a parameter, or its quotes.
var nameToken = regexp.MustCompile(`^(?:[A-Za-z_]\w*|"[^"\\]*"|'[^'\\]*')$`)

// operandEnd matches the last token of an operand, which a member may follow: in
// `doc.params` the dot selects a member, and that is no parameter.
var operandEnd = regexp.MustCompile(`[\w)\]}"']$`)

// unusedParam returns the first parameter that a condition does not use, "" if there is none.
// It reads tokens, not CEL: in doubt all are used, as in size(params).
func unusedParam(where string, params map[string]json.RawMessage) string {
	tokens := slices.DeleteFunc(celToken.FindAllString(where, -1), func(token string) bool { return strings.HasPrefix(token, "//") })
	at := func(i int) string {
		if i < 0 || i >= len(tokens) {
			return ""
		}
		return tokens[i]
	}
	used := map[string]bool{}
	for i, token := range tokens {
		switch {
		case token != "params" || at(i-1) == "." && operandEnd.MatchString(at(i-2)):
			continue // no parameter, or a member of that name
		case at(i+1) == "." && at(i+3) != "(", at(i+1) == "[" && at(i+3) == "]":
			if name := at(i + 2); nameToken.MatchString(name) {
				used[strings.Trim(name, `"'`)] = true
				continue
			}
		}
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !used[name] {
			return name
		}
	}
	return ""
}
