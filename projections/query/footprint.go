package query

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// maxFootprint bounds the memory of a compiled condition, in bytes. It matters for regular
// expressions only: one of 12 bytes can compile to 2 MB. It bounds memory that outlives
// the query: conditions stay in the cache.
const maxFootprint = 3 << 20

// Bytes that a compiled condition has at most for each of its parts, as measured.
const (
	nodeBytes        = 450
	regexBytes       = 2000
	instructionBytes = 160
	runeBytes        = 8
)

// footprint returns an upper estimate of the bytes that an expression has once it is
// compiled, or an error that says what to do if they exceed maxFootprint.
func footprint(e ast.Expr) (bytes int, err error) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		bytes += nodeBytes
		switch {
		case e.Kind() == ast.LiteralKind:
			bytes += textBytes(e.AsLiteral())
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == overloads.Matches:
			for _, arg := range e.AsCall().Args() {
				bytes += patternsFootprint(arg)
			}
		}
	}))
	if bytes > maxFootprint {
		err = fmt.Errorf("compiled, it would have about %d KiB, and at most %d are allowed: use fewer or shorter regular expressions, or smaller classes and counts in them", bytes>>10, maxFootprint>>10)
	}
	return bytes, err
}

// patternsFootprint is the footprint of all literals in an argument of matches: CEL folds
// calls such as string(b'a') into a constant, which it compiles.
func patternsFootprint(arg ast.Expr) (bytes int) {
	ast.PostOrderVisit(arg, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.LiteralKind {
			return
		}
		switch pattern := e.AsLiteral().(type) {
		case types.String:
			bytes += patternFootprint(string(pattern))
		case types.Bytes:
			bytes += patternFootprint(string(pattern))
		}
	}))
	return bytes
}

// patternFootprint returns an upper estimate of the bytes of one compiled regular
// expression.
func patternFootprint(pattern string) int {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0 // CEL refuses it
	}
	instructions, runes := programSize(re)
	if strings.Contains(pattern, "^") || strings.Contains(pattern, `\A`) {
		// Package regexp may compile it to its one-pass form, in which each instruction has
		// the runes of all that may follow.
		return regexBytes + instructions*(instructionBytes+runes*runeBytes)
	}
	return regexBytes + instructions*instructionBytes + runes*runeBytes
}

// programSize returns at least as many instructions as a regular expression compiles to,
// and the runes of its literals and classes, which all repetitions share. A repetition is
// unrolled by the compiler: a{100} has a hundred times the instructions of a.
func programSize(re *syntax.Regexp) (instructions, runes int) {
	if re.Op == syntax.OpLiteral {
		return len(re.Rune), len(re.Rune)
	}
	for _, sub := range re.Sub {
		i, r := programSize(sub)
		instructions, runes = instructions+i, runes+r
	}
	if re.Op == syntax.OpRepeat {
		instructions = (instructions + 1) * (max(re.Min, re.Max) + 1)
	}
	return instructions + len(re.Sub) + 1, runes + len(re.Rune)
}
