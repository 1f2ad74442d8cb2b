package machine

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// frozenEvents is the minimum length of the frozen log, frozenSeed its random seed.
const (
	frozenEvents = 10_000
	frozenSeed   = 4
)

// frozen is a log that is the same in every run and version, with the facts that its
// writer knew of each event.
type frozen struct {
	known []projections.Fact
	hash  string // of the whole log
}

// bare returns the log as a reader decodes it, without the writer's knowledge.
func (f *frozen) bare() []projections.Fact {
	facts := make([]projections.Fact, len(f.known))
	for i := range facts {
		facts[i].Event = f.known[i].Event
	}
	return facts
}

// makeFrozenLog simulates several collections whose policies change and which are deleted
// and created again, with mutations of all kinds, a third of which are refused.
func makeFrozenLog() (*frozen, error) {
	f, hash := &frozen{}, sha256.New()
	var simulation *Simulation
	simulation, err := NewSimulation(func(e *schema.Event) error {
		pending := simulation.Machine.PendingFacts()
		fact := pending[e.Seq-pending[0].Seq]
		kept := *e
		kept.Body = append([]byte(nil), e.Body...)
		fact.Event = &kept
		f.known = append(f.known, fact)
		_, err := fmt.Fprintf(hash, "%s %q\n", e.AppendJSON(nil), e.MsgID)
		return err
	})
	if err != nil {
		return nil, err
	}
	d := frozenDraw{rand.New(rand.NewPCG(frozenSeed, 0))}
	at, cause := int64(1_431_857_100_000), uint64(0)
	for len(f.known) < frozenEvents {
		at += []int64{0, 0, 1, 250, 999, 1000, 2500, 7000, 119_999}[d.IntN(9)]
		if d.IntN(400) == 0 {
			at += 3 * 24 * 3600 * 1000
		}
		if d.IntN(20) == 0 {
			err = frozenBatch(simulation, at, d)
		} else {
			mu := d.mutation()
			if d.IntN(3) == 0 {
				cause++
				mu.Recorded, mu.Cause = true, cause
			}
			if err = frozenRepeat(simulation, at, mu); err == nil {
				_, err = simulation.Mutate(at, mu)
			}
		}
		if err != nil {
			return nil, err
		}
		if err := simulation.Flush(); err != nil {
			return nil, err
		}
	}
	f.hash = fmt.Sprintf("%x", hash.Sum(nil))
	return f, nil
}

// frozenRepeat turns a mutation with a remembered Nats-Msg-Id into the one that first
// used the id: when the log was frozen, any mutation counted as its repeat.
func frozenRepeat(s *Simulation, at int64, mu *schema.Mutation) error {
	if mu.Fault != nil || mu.MsgID == "" {
		return nil
	}
	if err := s.Advance(at); err != nil {
		return err
	}
	if r, ok, _ := s.Machine.repeated(mu.MsgID); ok {
		first := schema.NewMutation(r.Mutation, nil)
		mu.Op, mu.Collection, mu.ID = first.Op, first.Collection, first.ID
	}
	return nil
}

// frozenBatch draws a batch and decides it.
func frozenBatch(s *Simulation, at int64, d frozenDraw) error {
	if err := s.Advance(at); err != nil {
		return err
	}
	if err := s.Flush(); err != nil {
		return err
	}
	var operations []string
	for range 1 + d.IntN(12) {
		id, _ := json.Marshal(d.id())
		op := d.pick("upsert", "upsert", "create", "delete", "patch")
		body := ""
		if op != "delete" {
			body = `,"body":` + d.document()
		}
		operations = append(operations, fmt.Sprintf(`{"op":"%s","id":%s%s}`, op, id, body))
	}
	b, fault := schema.ParseBatch(d.collection(), fmt.Appendf(nil, `{"operations":[%s],"atomic":%t}`, strings.Join(operations, ","), d.IntN(2) == 0))
	if fault != nil {
		return fault
	}
	_, err := s.Machine.DecideBatch(at, NewBatchRun(b, 1<<20), math.MaxInt)
	s.Schedule()
	return err
}

// frozenDraw draws random client operations.
type frozenDraw struct{ *rand.Rand }

func (d frozenDraw) pick(from ...string) string { return from[d.IntN(len(from))] }

func (d frozenDraw) collection() string {
	return d.pick("carts", "carts", "orders", "orders", "sessions", "a", "Z-9_")
}

func (d frozenDraw) id() string {
	n := d.IntN(60)
	switch {
	case n < 50:
		return fmt.Sprint("d", n)
	case n == 50:
		return strings.Repeat("é", 127) + "x" // 255 bytes
	}
	return []string{"ü/1", "日本語", "a b", "*.>", "%41", "\U0001F4A3", "%", "...", `"\`}[n-51]
}

func (d frozenDraw) document() string {
	members := []string{fmt.Sprintf(`"n":%d`, d.IntN(1000))}
	if ttl := d.pick("", "", "", "null", "-1", "1", "2", "30", "600", "5.0", "2147483647", "2147483647", "0", `"5"`, "1.5", `{"in":5}`); ttl != "" {
		members = append(members, `"ttl":`+ttl)
	}
	if d.IntN(2) == 0 {
		members = append(members, `"customer":"`+d.pick("C1", "C2", "Zoë", "")+`"`)
	}
	if d.IntN(4) == 0 {
		members = append(members, `"tags":[`+d.pick("", `"x"`, `"x",1,null`, `{"y":[true]}`)+`]`)
	}
	if d.IntN(8) == 0 {
		members = append(members, `"o":{"p":`+d.pick("null", "1e300", "-0.0", "9007199254740993", `"`+strings.Repeat("long", 200)+`"`)+`}`)
	}
	d.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

func (d frozenDraw) mutation() *schema.Mutation {
	op, id, body := "", "", ""
	switch n := d.IntN(100); {
	case n < 5:
		op, body = "collection.create", d.properties()
	case n < 9:
		op, body = "collection.replace", d.properties()
	case n < 10:
		op = "collection.delete"
	default:
		op, id = "document."+d.pick("create", "upsert", "upsert", "upsert", "replace", "patch", "delete"), d.id()
		if op != "document.delete" {
			body = d.document()
		}
	}
	mu := schema.NewNamedMutation(op, d.collection(), id, []byte(body))
	if d.IntN(5) == 0 {
		mu.MsgID = fmt.Sprint("m", d.IntN(30))
	}
	if d.IntN(20) == 0 {
		mu.IfMatch = d.pick("*", "1", "7")
	}
	return mu
}

func (d frozenDraw) properties() string {
	members := []string{`"defaultTtl":` + d.pick("null", "null", "-1", "-1", "1", "60", "3600", "2147483647", "0")}
	if d.IntN(4) == 0 {
		members = append(members, `"previousImages":false`)
	}
	if d.IntN(2) == 0 {
		members = append(members, `"indexingPolicy":{"indexingMode":"`+d.pick("consistent", "consistent", "lazy", "none")+
			`","includedPaths":[`+d.pick("", `{"path":"/customer"}`, `{"path":"/n"},{"path":"/tags"}`, `{"path":"/o/p"},{"path":"/customer"}`)+`]}`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

var rewriteFrozen = flag.Bool("rewrite-frozen", false, "write what the frozen log gives to testdata/frozen.txt")

const frozenFile = "testdata/frozen.txt"

// frozenValue returns the value of a name in testdata/frozen.txt.
func frozenValue(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(frozenFile)
	if err != nil && !*rewriteFrozen {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+": "); ok {
			return value
		}
	}
	return ""
}

// TestFrozenDigest: folding the frozen log, as it was decided or as it is read, gives the
// digest that testdata/frozen.txt records for this format version.
func TestFrozenDigest(t *testing.T) {
	f, err := makeFrozenLog()
	if err != nil {
		t.Fatal(err)
	}
	fold := func(facts []projections.Fact) *projections.Store {
		s, err := projections.Open("projection", projections.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		for part := range slices.Chunk(facts, 999) {
			if err := s.Fold(part); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	s := fold(f.bare())
	if known := fold(f.known).Digest(); known != s.Digest() {
		t.Errorf("the digest is %s, and by what the writer knew %s", s.Digest(), known)
	}
	format := fmt.Sprintf("format %d", s.Cursor().Format)
	log := fmt.Sprintf("%d events, sha256 %s", len(f.known), f.hash)
	digest := s.Digest().String()
	if *rewriteFrozen {
		rewriteFrozenFile(t, log, format, digest)
	}
	if want := frozenValue(t, "log"); log != want {
		t.Fatalf("the frozen log is no longer the same: it has\n  %s\nand had\n  %s\nWhat is decided or how events are written has changed, or what this test draws. If that is meant, go test ./processor -run FrozenDigest -rewrite-frozen, and the digests of older formats go, being of another log", log, want)
	}
	switch want := frozenValue(t, format); {
	case want == "":
		t.Fatalf("%s has no digest in %s: go test ./processor -run FrozenDigest -rewrite-frozen", format, frozenFile)
	case digest != want:
		t.Fatalf("the digest of the frozen log is %s, and was %s in the same %s: the same log makes another state. Fix that, or raise formatVersion in projections/cursor.go, so that projections are folded again, and go test ./processor -run FrozenDigest -rewrite-frozen", digest, want, format)
	}
}

func rewriteFrozenFile(t testing.TB, log, format, digest string) {
	t.Helper()
	kept := ""
	if frozenValue(t, "log") == log {
		b, err := os.ReadFile(frozenFile)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "format ") && !strings.HasPrefix(line, format+":") {
				kept += line
			}
		}
	}
	if err := os.WriteFile(frozenFile, fmt.Appendf(nil, "log: %s\n%s%s: %s\n", log, kept, format, digest), 0o644); err != nil {
		t.Fatal(err)
	}
}
