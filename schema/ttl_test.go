package schema

import (
	"errors"
	"fmt"
	"testing"
)

// TestDeadlineOf: the nine cells of the contract's TTL table.
func TestDeadlineOf(t *testing.T) {
	const ts, m, n = 1_000, 30, 3_600
	never := Deadline{}
	afterM := Deadline{At: ts + m, TTL: m, Rule: RuleDocument}
	afterN := Deadline{At: ts + n, TTL: n, Rule: RuleCollection}
	for _, row := range []struct {
		name                string
		ttl                 TTL
		off, noDefault, onN Deadline
	}{
		{"ttl absent", Inherit, never, never, afterN},
		{"ttl -1", Never, never, never, never},
		{"ttl m", m, never, afterM, afterM},
	} {
		for _, cell := range []struct {
			name string
			def  DefaultTTL
			want Deadline
		}{
			{"TTL off", Off, row.off},
			{"defaultTtl -1", NoDefault, row.noDefault},
			{"defaultTtl n", n, row.onN},
		} {
			t.Run(row.name+", "+cell.name, func(t *testing.T) {
				if got := DeadlineOf(cell.def, row.ttl, ts); got != cell.want {
					t.Fatalf("got %+v, want %+v", got, cell.want)
				}
			})
		}
	}
}

func TestDeadlineBeyondInt32(t *testing.T) {
	const ts = 4_000_000_000 // a second in the year 2096
	if got := DeadlineOf(MaxTTL, Inherit, ts); got.At != ts+MaxTTL {
		t.Errorf("collection: %+v", got)
	}
	if got := DeadlineOf(NoDefault, MaxTTL, ts); got.At != ts+MaxTTL {
		t.Errorf("document: %+v", got)
	}
}

func TestPassed(t *testing.T) {
	d := Deadline{At: 1_030, TTL: 30, Rule: RuleDocument}
	for now, want := range map[int64]bool{0: false, 1_029: false, 1_030: true, 1_031: true} {
		if got := d.Passed(now); got != want {
			t.Errorf("at %d: got %v", now, got)
		}
	}
	if never := (Deadline{}); never.Passed(1 << 62) {
		t.Error("what has no deadline passed it")
	}
}

// TestProlonged: Prolonged agrees with the deadlines under both defaults.
func TestProlonged(t *testing.T) {
	defaults := []DefaultTTL{Off, NoDefault, 1, 5, 6}
	for _, from := range defaults {
		for _, to := range defaults {
			want := false
			for _, ttl := range []TTL{Inherit, Never, 3} {
				before, after := DeadlineOf(from, ttl, 100), DeadlineOf(to, ttl, 100)
				want = want || before.Rule != NoRule && (after.Rule == NoRule || after.At > before.At)
			}
			if got := from.Prolonged(to); got != want {
				t.Errorf("from %d to %d: %v, want %v", from, to, got, want)
			}
		}
	}
}

func TestRuleNames(t *testing.T) {
	for rule, name := range map[Rule]string{NoRule: "", RuleDocument: "document", RuleCollection: "collection"} {
		if rule.String() != name || ParseRule(name) != rule {
			t.Errorf("%q: %q, %v", name, rule, ParseRule(name))
		}
	}
	if ParseRule("Document") != NoRule {
		t.Error("Document is accepted as a rule")
	}
}

// spellings are JSON values by their meaning as a ttl or defaultTtl.
var spellings = map[int32][]string{
	0:      {"null"},
	-1:     {"-1", "-1.0", "-1e0"},
	1:      {"1"},
	5:      {"5", "5.0", "5e0", "5E+0", "0.5e1", "50e-1", "5.0000000000000000000000000000000000"},
	MaxTTL: {"2147483647", "2.147483647e9"},
	illegal: {"0", "-0", "0.0", "0e9", "-2", "1.5", "0.5", "-0.5", "-1.5", "2147483647.5", "2147483648", "4294967297", "18446744073709551617", "-2147483648",
		"1e400", "-1e400", "1e-400", "1.0000000000000000000001", "0.99999999999999999999999", "2147483647.0000000001", "-1.0000000000000000001",
		`"5"`, `""`, `"null"`, "true", "false", "[]", "[5]", "{}"},
}

const illegal = -2

func TestTTLSpellings(t *testing.T) {
	for want, all := range spellings {
		for _, spelling := range all {
			body := fmt.Sprintf(`{"id":"a","ttl":%s}`, spelling)
			d, fault := ParseDocument("a", []byte(body))
			if fault != nil || string(d.Body) != body {
				t.Errorf("got %s, %v: a ttl is stored however it is written", d.Body, fault)
			}
			if want != illegal && (d.TTL != TTL(want) || d.BadTTL != nil || d.TTLError() != nil) ||
				want == illegal && (d.TTL != Inherit || string(d.BadTTL) != spelling || !errors.Is(d.TTLError(), ErrBadTTL)) {
				t.Errorf("%s: got %d, bad %q, %v, want %d", spelling, d.TTL, d.BadTTL, d.TTLError(), want)
			}
			p, fault := ParseProperties("c", []byte(`{"defaultTtl": `+spelling+` }`))
			if want != illegal && (fault != nil || p.DefaultTTL != DefaultTTL(want)) || want == illegal && !errors.Is(fault, ErrBadTTL) {
				t.Errorf("%s: as defaultTtl %d, %v, want %d", spelling, p.DefaultTTL, fault, want)
			}
		}
	}
}
