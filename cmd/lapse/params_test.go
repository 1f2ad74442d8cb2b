package main

import (
	"encoding/json"
	"testing"
)

// TestUnusedParam: a parameter is used if the condition names it outside of its strings and
// comments, or may read all.
func TestUnusedParam(t *testing.T) {
	for where, unused := range map[string]bool{
		`!(doc.total < params.max)`:                  true,
		`doc.total < params.mx`:                      false,
		`doc.total<params . mx`:                      false,
		`doc.total < params["mx"]`:                   false,
		`doc.total < params [ 'mx' ]`:                false,
		`has(params.mx) || doc.free`:                 false,
		`params.mx.exists(i, i == doc.x)`:            false,
		`[doc.x, params.mx].size() > 1`:              false,
		`.params.mx == doc.x`:                        false,
		`doc.x == 1 // params.mx`:                    true,
		"doc.x == 1 // it's\n && doc.y == params.mx": false,
		`doc.x == 'params.mx'`:                       true,
		`doc.x == "it's params.mx"`:                  true,
		`doc.x == 'it\'s params.mx'`:                 true,
		`doc.x == r'\' && doc.y == params.mx`:        false,
		`doc.x == """a " params.mx"""`:               true,
		`doc.x == '\\' && doc.y == params.mx`:        false,
		`doc.params.mx == 1`:                         true,
		`doc['a'].params.mx == 1`:                    true,
		`f(doc).params.mx == 1`:                      true,
		`myparams.mx == 1 || doc.x`:                  true,
		`params.mxy == 1`:                            true,
		`params.a.mx == 1`:                           true,
		`params["mx.a"] == 1`:                        true,
		`size(params) == 1`:                          false,
		`'mx' in params`:                             false,
		`params.exists(name, name == doc.x)`:         false,
		`doc.x == params[r'mx']`:                     false,
		`doc.x == params['m\u0078']`:                 false,
		`doc.x == params['m' + 'x']`:                 false,
		``:                                           true,
	} {
		want := ""
		if unused {
			want = "mx"
		}
		if got := unusedParam(where, map[string]json.RawMessage{"mx": json.RawMessage("5")}); got != want {
			t.Errorf("%s: unused %q, not %q", where, got, want)
		}
	}
}
