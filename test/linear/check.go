package linear

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience bounds the search for an order of the operations on one document.
const patience = time.Minute

// Check returns an error that says why operations on one collection, in any order, are
// not linearizable, or nil if they are. The documents must not have existed before.
// defaultTTL is the collection's: -1 or seconds.
//
// It also checks that no reply has a lower Lapse-Seq than an earlier reply, except for
// those that are 0.
func Check(operations []Operation, defaultTTL int64) error {
	if err := checkSequences(operations); err != nil {
		return err
	}
	resolved, err := resolve(operations)
	if err != nil {
		return err
	}
	byID := make(map[string][]porcupine.Operation)
	for i := range resolved {
		o := &resolved[i]
		end := o.Return
		if o.Code == 0 {
			end = math.MaxInt64
		}
		byID[o.ID] = append(byID[o.ID], porcupine.Operation{ClientId: o.Client, Input: o, Output: o, Call: o.Call, Return: end})
	}
	model := (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, input, _ any) (next []any) {
			for _, n := range step(s.(state), input.(*Operation), defaultTTL) {
				next = append(next, n)
			}
			return next
		},
	}).ToModel()
	for id, one := range byID {
		result, info := porcupine.CheckOperationsVerbose(model, one, patience)
		if result != porcupine.Ok {
			return fmt.Errorf("the %d operations on %s: %s\n%s", len(one), id, result, explain(one, info))
		}
	}
	return nil
}

// checkSequences checks that an operation that was called after another returned has a
// Lapse-Seq at least as high, and that no reply has a version above its own Lapse-Seq.
func checkSequences(operations []Operation) error {
	type moment struct {
		at     int64
		o      *Operation
		called bool
	}
	var moments []moment
	for i := range operations {
		if o := &operations[i]; o.Code != 0 && o.Seq != 0 {
			moments = append(moments, moment{o.Call, o, true}, moment{o.Return, o, false})
		}
	}
	slices.SortFunc(moments, func(a, b moment) int { return int(a.at - b.at) })
	least := make(map[*Operation]*Operation)
	latest := &Operation{}
	for _, m := range moments {
		switch {
		case m.called:
			least[m.o] = latest
		case m.o.Seq < m.o.Version:
			return fmt.Errorf("a version of the log's future, at Lapse-Seq %d: %s", m.o.Seq, m.o)
		case m.o.Seq < least[m.o].Seq:
			return fmt.Errorf("Lapse-Seq %d and then %d:\n%s\n%s", least[m.o].Seq, m.o.Seq, least[m.o], m.o)
		case m.o.Seq > latest.Seq:
			latest = m.o
		}
	}
	return nil
}

// resolve fills in the outcome of writes without a reply, where another operation has
// seen it.
func resolve(operations []Operation) ([]Operation, error) {
	seen := make(map[int]*Operation)
	for i := range operations {
		o := &operations[i]
		if o.Version == 0 {
			continue
		}
		if before := seen[o.N]; before != nil && (before.Result.Content != o.Result.Content || before.Version != o.Version || before.TS != o.TS) {
			return nil, fmt.Errorf("one write, seen as two:\n%s\n%s", before, o)
		}
		seen[o.N] = o
	}
	resolved := slices.Clone(operations)
	for i := range resolved {
		o := &resolved[i]
		if s := seen[o.Write.N]; o.Code == 0 && o.Kind != Get && o.Kind != Delete && s != nil {
			o.Content, o.Version, o.TS = s.Result.Content, s.Version, s.TS
		}
	}
	return resolved, nil
}

// explain shows where the longest partial order ends.
func explain(operations []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations() {
		for _, p := range partial {
			if len(p) > len(longest) {
				longest = p
			}
		}
	}
	var b strings.Builder
	b.WriteString("an order of some begins:\n")
	ordered := make(map[*Operation]bool)
	for i, p := range longest {
		o := p.Input.(*Operation)
		ordered[o] = true
		if len(longest)-i <= 15 {
			fmt.Fprintf(&b, "  %s\n", o)
		}
	}
	b.WriteString("and finds no place for:\n")
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	freeReads := 0
	for _, p := range operations {
		if o := p.Input.(*Operation); !ordered[o] && freeReads < 15 {
			freeReads++
			fmt.Fprintf(&b, "  %s\n", o)
		}
	}
	return b.String()
}
