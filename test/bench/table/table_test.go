package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/versus"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file")

// get returns a row with the ratio of lapse to its peer.
func get(benchmark, peer string, ratio float64) row {
	return row{Package: ".", Date: "2026-11-20", Row: versus.Row{
		Work: "`get`", Peer: peer, Unit: "/s", Lapse: 100_000 * ratio, Other: 100_000, Ratio: ratio,
		Goal: versus.AtLeast(0.9), Benchmark: "Benchmark" + benchmark,
	}}
}

func alone(benchmark, unit string, value float64, goal versus.Goal) row {
	return row{Package: "./processor", Date: "2026-11-19", Row: versus.Row{
		Work: "work of " + benchmark, Unit: unit, Lapse: value, Goal: goal, Benchmark: "Benchmark" + benchmark,
	}}
}

// TestGolden: reported rows become the table in the golden file.
func TestGolden(t *testing.T) {
	const golden = "testdata/table.md"
	text, err := os.ReadFile("testdata/rows.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parseRows(text, ".", "2026-11-20")
	if err != nil {
		t.Fatal(err)
	}
	rows[0].Date = "2026-11-19"
	merged, _ := merge(nil, rows, true)
	got := table{machine{2, "EPYC", "1.26.8", "2.15.2", "2.1.7", "7.0.15"}, merged}.markdown()
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the table is\n%s\nwant\n%s\n(-rewrite, if that is meant)", got, want)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 24.83: "24.8", 0.12345: "0.123", 121_345: "121,000", 999.6: "1,000", 2_290_000: "2,290,000", -1234: "-1,230", 15_818: "15,800",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.0412: "0.041", 0.9: "0.90", 1.266: "1.27", 3.177: "3.2", 41.4: "41"} {
		if got := formatRatio(v); got != want {
			t.Errorf("the ratio %v is written %s, want %s", v, got, want)
		}
	}
}

func TestSplice(t *testing.T) {
	got, err := splice("a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n", "new\n")
	if want := "a\n<!-- bench -->\nnew\n<!-- /bench -->\nb\n"; got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, text := range []string{"", "<!-- bench -->\n", "<!-- /bench --><!-- bench -->\n"} {
		if _, err := splice(text, "new\n"); err == nil {
			t.Errorf("%q takes a table", text)
		}
	}
}

// TestPage: docs/benchmarks.md has the marks for `make bench`.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../" + pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := splice(string(text), ""); err != nil {
		t.Error(err)
	}
}

// TestTablesFile: reading and writing table.json does not change it.
func TestTablesFile(t *testing.T) {
	const name = "table.json"
	kept, err := readTables(name)
	if err != nil {
		t.Fatal(err)
	}
	again := t.TempDir() + "/" + name
	if err := kept.write(again); err != nil {
		t.Fatal(err)
	}
	want, _ := os.ReadFile(name)
	got, err := os.ReadFile(again)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("written anew it is\n%s\nwant\n%s", got, want)
	}
}

func TestMerge(t *testing.T) {
	was := []row{get("Get/callers=1", "echo", 1), get("Get/callers=1", "KV", 1), alone("Append", "/s", 5, versus.Goal{}), alone("Other", "", 1, versus.Goal{})}
	for _, test := range []struct {
		name         string
		now          []row
		whole        bool
		merged, gone string
	}{
		{"nothing ran", nil, false, "echo=1 KV=1 Append=5 Other=1", ""},
		{"one of them", []row{alone("Append", "/s", 7, versus.Goal{})}, false, "echo=1 KV=1 Append=7 Other=1", ""},
		{"a peer less, another more", []row{get("Get/callers=1", "KV", 2), get("Get/callers=1", "Redis", 3)}, false, "KV=2 Redis=3 Append=5 Other=1", "echo=1"},
		{"all of them", []row{alone("Other", "", 2, versus.Goal{}), get("Get/callers=1", "KV", 2)}, true, "KV=2 Other=2", "echo=1 Append=5"},
		{"in the order of the table", []row{alone("Odd", "", 1, versus.Goal{}), alone("CatchUp", "", 1, versus.Goal{})}, false, "echo=1 KV=1 Append=5 CatchUp=1 Other=1 Odd=1", ""},
	} {
		merged, gone := merge(was, test.now, test.whole)
		if brief(merged) != test.merged || brief(gone) != test.gone {
			t.Errorf("%s: kept are %s, gone %s, want %s, %s", test.name, brief(merged), brief(gone), test.merged, test.gone)
		}
	}
}

func brief(rows []row) string {
	var words []string
	for _, r := range rows {
		words = append(words, fmt.Sprintf("%s=%v", strings.TrimPrefix(r.Peer+r.Work, "work of "), r.value()))
	}
	return strings.ReplaceAll(strings.Join(words, " "), "`get`", "")
}

func TestWorse(t *testing.T) {
	most, least := versus.AtMost(3), versus.AtLeast(3)
	for _, test := range []struct {
		name              string
		row               row
		was, now          float64
		compared, isWorse bool
	}{
		{"a ratio of rates", get("A", "KV", 0), 0.9, 0.61, true, false},
		{"a ratio of rates, a third lower", get("A", "KV", 0), 0.9, 0.59, true, true},
		{"a ratio of rates, higher", get("A", "KV", 0), 0.9, 9, true, false},
		{"bytes, a third more", alone("A", " MiB", 0, most), 3, 4.1, true, true},
		{"bytes, less", alone("A", " MiB", 0, most), 3, 1, true, false},
		{"bytes, more and within the goal", alone("A", " MiB", 0, most), 1, 2, true, false},
		{"a count that was none", alone("A", "", 0, most), 0, 4, true, true},
		{"a count, still none", alone("A", "", 0, most), 0, 0, true, false},
		{"a count of what should be many", alone("A", "", 0, least), 3, 1, true, true},
		{"bytes without a goal", alone("A", " MiB", 0, versus.Goal{}), 3, 9, false, false},
		{"a rate by itself", alone("A", " entries/s", 0, least), 9, 3, false, false},
		{"a time by itself", alone("A", " ms", 0, most), 3, 9, false, false},
	} {
		set := func(v float64) row {
			r := test.row
			if r.Peer != "" {
				r.Ratio = v
			} else {
				r.Lapse = v
			}
			return r
		}
		found := compare([]row{set(test.was)}, []row{set(test.now)}, true)
		if (found.compared == 1) != test.compared || (len(found.worse) == 1) != test.isWorse {
			t.Errorf("%s: %+v", test.name, found)
		}
	}
	lateness := get("A", "Redis", 0.5)
	lateness.Unit, lateness.Goal = " ms", versus.Goal{}
	slower := lateness
	slower.Ratio = 0.7
	if !(change{lateness, slower}).worse() || (change{slower, lateness}).worse() {
		t.Error("a ratio of times without a goal is better when it is small")
	}
}

func TestCompareReportsMissingAndNew(t *testing.T) {
	echo, kv, redis, other := get("Get", "echo", 1), get("Get", "KV", 1), get("Get", "Redis", 1), alone("Append", "/s", 5, versus.Goal{})
	found := compare([]row{echo, kv, other}, []row{kv, redis}, false)
	if brief(found.missing) != "echo=1" || brief(found.fresh) != "Redis=1" || found.compared != 1 {
		t.Errorf("%+v", found)
	}
	if found = compare([]row{echo, other}, []row{echo}, true); brief(found.missing) != "Append=5" {
		t.Errorf("%+v", found)
	}
	half := func(r row) row { r.Ratio /= 2; return r }
	found = compare([]row{echo, kv}, []row{half(echo), half(kv)}, true)
	if len(found.worse) != 2 || len(found.benchmarks()) != 1 {
		t.Errorf("%+v, to be measured again %v", found.worse, found.benchmarks())
	}
	if got := found.worse[0].String(); got != "`get`, beside echo: 0.50, was 1.00" {
		t.Error(got)
	}
}

func TestExactly(t *testing.T) {
	if got, want := exactly("BenchmarkQuery/sqlite=purego/a.b"), `^BenchmarkQuery$/^sqlite=purego$/^a\.b$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestParseRowsRefuses(t *testing.T) {
	if rows, err := parseRows([]byte("{\n"), ".", ""); err == nil {
		t.Errorf("half a row gives %v", rows)
	}
	rows, err := parseRows([]byte(`{"Work":"w","Lapse":123456.7,"Ratio":0.123456}`+"\n"), ".", "")
	if err != nil || !slices.Equal(rows, []row{{Package: ".", Row: versus.Row{Work: "w", Lapse: 123500, Ratio: 0.1235}}}) {
		t.Errorf("%v, %v", rows, err)
	}
}
