package linear

import (
	"strings"
	"testing"
	"time"
)

// past is a history on one document, one operation after the other unless they
// are made to overlap.
type past struct {
	operations []Operation
	moment     int64
	second     int64
}

func (p *past) do(kind Kind, code int, change ...func(*Operation)) *past {
	o := Operation{ID: "a", Kind: kind, Call: p.moment + 1, Return: p.moment + 2,
		Called: time.Unix(p.second, 1e6), Returned: time.Unix(p.second, 2e6)}
	p.moment += 2
	o.Code = code
	for _, c := range change {
		c(&o)
	}
	p.operations = append(p.operations, o)
	return p
}

// late adds the possible late effect of an earlier request of the previous operation.
func (p *past) late() *past {
	p.operations = append(p.operations, p.operations[len(p.operations)-1].late())
	return p
}

func (p *past) at(second int64) *past { p.second = second; return p }

// wrote makes an operation a write of n, replied to with version n; a patch has no Base.
func wrote(n int, ts int64) func(*Operation) {
	return func(o *Operation) {
		o.Write = Content{N: n}
		if o.Kind != Patch {
			o.Write.Base = n
		}
		if o.Code == 200 || o.Code == 201 {
			o.Content, o.Version, o.TS = o.Write, uint64(n), ts
		}
	}
}

func on(base int) func(*Operation) { return func(o *Operation) { o.Result.Base = base } }

func living(ttl int64) func(*Operation) {
	return func(o *Operation) {
		o.Write.TTL = ttl
		if o.Version != 0 {
			o.Result.TTL = ttl
		}
	}
}

// saw makes an operation a get of the document that n wrote.
func saw(n int, ts, ttl int64) func(*Operation) {
	return func(o *Operation) { o.Content, o.Version, o.TS = Content{n, n, ttl}, uint64(n), ts }
}

func match(version uint64) func(*Operation) { return func(o *Operation) { o.IfMatch = version } }
func took(moments, seconds int64) func(*Operation) {
	return func(o *Operation) {
		o.Return += moments
		o.Returned = o.Returned.Add(time.Duration(seconds) * time.Second)
	}
}
func unknown(o *Operation) { o.Result = Result{} }

// TestCheck: histories that lapse may produce pass, and those that it must not do not.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name  string
		past  *past
		legal bool
	}{
		{"a life", new(past).at(10).do(Get, 404).do(Create, 201, wrote(2, 10)).do(Get, 200, saw(2, 10, 0)).do(Create, 409, wrote(3, 0)).
			do(Upsert, 200, wrote(4, 10)).do(Patch, 200, wrote(5, 10), on(4)).do(Replace, 412, wrote(6, 0), match(4)).do(Replace, 200, wrote(7, 10), match(5)).
			do(Delete, 412, match(5)).do(Delete, 204, match(7)).do(Delete, 404).do(Patch, 404, wrote(8, 0)).do(Upsert, 404, wrote(9, 0), match(7)).do(Upsert, 201, wrote(10, 10)), true},
		{"a stale read", new(past).do(Create, 201, wrote(2, 0)).do(Upsert, 200, wrote(3, 0)).do(Get, 200, saw(2, 0, 0)), false},
		{"a read beside the write", new(past).do(Create, 201, wrote(2, 0)).do(Upsert, 200, wrote(3, 0), took(2, 0)).do(Get, 200, saw(2, 0, 0)), true},
		{"two reads beside the write, the first newer", new(past).do(Create, 201, wrote(2, 0)).do(Upsert, 200, wrote(3, 0), took(5, 0)).do(Get, 200, saw(3, 0, 0)).do(Get, 200, saw(2, 0, 0)), false},
		{"a lost write", new(past).do(Create, 201, wrote(2, 0)).do(Get, 404), false},
		{"a lost patch", new(past).do(Create, 201, wrote(2, 0)).do(Patch, 200, wrote(3, 0), on(2)).do(Get, 200, saw(2, 0, 0)), false},
		{"a patch of something else", new(past).do(Create, 201, wrote(2, 0)).do(Patch, 200, wrote(3, 0), on(1)), false},
		{"a resurrection", new(past).do(Create, 201, wrote(2, 0)).do(Delete, 204).do(Get, 200, saw(2, 0, 0)), false},
		{"two creates", new(past).do(Create, 201, wrote(2, 0)).do(Create, 201, wrote(3, 0)), false},
		{"two creates at once", new(past).do(Create, 201, wrote(2, 0), took(2, 0)).do(Create, 201, wrote(3, 0)), false},
		{"a create refused for nothing", new(past).do(Create, 409, wrote(2, 0)), false},
		{"two deletes", new(past).do(Create, 201, wrote(2, 0)).do(Delete, 204).do(Delete, 204), false},
		{"If-Match passed over", new(past).do(Create, 201, wrote(2, 0)).do(Upsert, 200, wrote(3, 0)).do(Replace, 200, wrote(4, 0), match(2)), false},
		{"If-Match held against it", new(past).do(Create, 201, wrote(2, 0)).do(Replace, 412, wrote(4, 0), match(2)), false},
		{"a version that goes back", new(past).do(Create, 201, wrote(3, 0)).do(Upsert, 200, wrote(2, 0)), false},

		{"an expiry on the second", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Get, 200, saw(2, 10, 2)).at(12).do(Get, 404).do(Create, 201, wrote(3, 12)), true},
		{"a read of what has expired", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(12).do(Get, 200, saw(2, 10, 2)), false},
		{"a read that began before", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Get, 200, saw(2, 10, 2), took(0, 1)), true},
		{"an early expiry", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Get, 404), false},
		{"one that took until then", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Get, 404, took(0, 1)), true},
		{"expired and read again", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Get, 404, took(0, 1)).do(Get, 200, saw(2, 10, 2)), false},
		{"expired and replaced", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(12).do(Replace, 200, wrote(3, 12)), false},
		{"expired and stamped before", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(12).do(Replace, 200, wrote(3, 11)), false},
		{"expired and deleted", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(12).do(Delete, 204), false},
		{"expired and in the way", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(12).do(Create, 409, wrote(3, 0)), false},
		{"created before it expired", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Create, 201, wrote(3, 11)), false},
		{"renewed, and gone by the old deadline", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Upsert, 200, wrote(3, 11), living(2)).at(12).do(Get, 404), false},
		{"a ttl kept by a patch", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Patch, 200, wrote(3, 11), on(2), func(o *Operation) { o.Result.TTL = 2 }).at(13).do(Get, 404), true},

		{"unknown and done", new(past).do(Create, 201, wrote(2, 0), unknown).do(Get, 200, saw(2, 0, 0)), true},
		{"unknown and not done", new(past).do(Create, 201, wrote(2, 0), unknown).do(Get, 404), true},
		{"unknown and done late", new(past).do(Create, 201, wrote(2, 0), unknown).do(Get, 404).do(Get, 200, saw(2, 0, 0)), true},
		{"unknown and done twice", new(past).do(Upsert, 201, wrote(2, 0), unknown).do(Get, 200, saw(2, 0, 0)).do(Delete, 204).do(Get, 200, saw(2, 0, 0)), false},
		{"unknown, done twice, and the second a version of its own", new(past).do(Upsert, 201, wrote(2, 0), unknown).do(Get, 200, saw(2, 0, 0)).do(Delete, 204).
			do(Get, 200, saw(2, 0, 0), func(o *Operation) { o.Version = 9 }), false},
		{"unknown and seen by nobody, but felt", new(past).do(Create, 201, wrote(2, 0), unknown).do(Create, 409, wrote(3, 0)).do(Delete, 204).do(Create, 201, wrote(4, 0)), true},
		{"felt twice", new(past).do(Create, 201, wrote(2, 0), unknown).do(Delete, 204).do(Delete, 204), false},
		{"refused, and an earlier request done late", new(past).do(Create, 201, wrote(2, 0)).do(Create, 409, wrote(3, 0)).late().do(Delete, 204).do(Get, 200, saw(3, 0, 0)), true},
		{"refused, and earlier requests done late twice", new(past).do(Delete, 404).late().do(Create, 201, wrote(2, 0)).do(Get, 404).do(Create, 201, wrote(3, 0)).do(Get, 404), false},
		{"refused, and done after that", new(past).do(Create, 201, wrote(2, 0)).do(Create, 409, wrote(3, 0)).do(Delete, 204).do(Get, 200, saw(3, 0, 0)), false},
		{"an unknown delete", new(past).do(Create, 201, wrote(2, 0)).do(Delete, 0).do(Get, 404), true},
		{"an unknown patch under another", new(past).do(Create, 201, wrote(2, 0)).do(Upsert, 200, wrote(3, 0), unknown).do(Patch, 200, wrote(4, 0), on(3)), true},
		{"an unknown write with an If-Match that fails", new(past).do(Create, 201, wrote(2, 0)).do(Upsert, 200, wrote(3, 0)).
			do(Replace, 200, wrote(4, 0), match(2), unknown).do(Get, 200, saw(4, 0, 0)), false},
		{"an unknown create that expired", new(past).at(10).do(Create, 201, wrote(2, 10), living(2), unknown).do(Create, 409, wrote(3, 0)).at(12).do(Get, 404), true},
		{"an unknown create that expired early", new(past).at(10).do(Create, 201, wrote(2, 10), living(2), unknown).do(Create, 409, wrote(3, 0)).at(11).do(Get, 404), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			operations := test.past.operations
			for i := range operations {
				operations[i].Seq = 100
			}
			err := Check(operations, -1)
			if test.legal && err != nil {
				t.Error(err)
			}
			if !test.legal && err == nil {
				t.Error("it passes")
			}
		})
	}
}

// TestSettle: the log decides the outcome of unacknowledged writes.
func TestSettle(t *testing.T) {
	p := new(past).do(Create, 201, wrote(2, 0), unknown).do(Upsert, 200, wrote(3, 0), unknown).do(Delete, 0).do(Get, 404)
	settled := Settle(p.operations, map[int]Result{3: {Content: Content{N: 3, Base: 3}, Version: 3}})
	if len(settled) != 3 || settled[0].Version != 3 || settled[1].Kind != Delete || settled[2].Kind != Get {
		t.Errorf("it is %v", settled)
	}
	if err := Check(settled, -1); err != nil {
		t.Error(err)
	}
}

// TestCheckSequences: Lapse-Seq never decreases from one reply to the next.
func TestCheckSequences(t *testing.T) {
	sequences := func(seqs ...uint64) []Operation {
		p := new(past)
		for _, seq := range seqs {
			p.do(Get, 404, func(o *Operation) { o.Seq = seq })
		}
		return p.operations
	}
	if err := Check(sequences(1, 2, 2, 3), -1); err != nil {
		t.Error(err)
	}
	if err := Check(sequences(1, 2, 0, 2), -1); err != nil {
		t.Error(err)
	}
	if err := Check(sequences(1, 3, 2), -1); err == nil || !strings.Contains(err.Error(), "Lapse-Seq 3 and then 2") {
		t.Errorf("it says %v", err)
	}
	if err := Check(new(past).do(Create, 201, wrote(2, 0), func(o *Operation) { o.Seq = 1 }).operations, -1); err == nil {
		t.Error("a version beyond its Lapse-Seq passes")
	}
}
