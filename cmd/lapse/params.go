package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// celToken matches a token of a CEL expression, or a comment. A raw string has no escapes.
var celToken = regexp.MustCompile(`(?s)//[^\n]*|` +
	`[bB]?[rR](?:""".*?"""|'''.*?'''|"[^"]*"|'[^']*')|` +
	`[bB]?(?:"""(?:\\.|.)*?"""|'''(?:\\.|.)*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|` +
	`[A-Za-z_]\w*|\S`)

// nameToken matches a token that may be the name of a parameter, or its quotes.
var nameToken = regexp.MustCompile(`^(?:[A-Za-z_]\w*|"[^"\\]*"|'[^'\\]*')$`)

// operandEnd matches the last token of an operand, which a member may follow.
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
