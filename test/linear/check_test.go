package linear

import (
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
func at(seq uint64) func(*Operation) { return func(o *Operation) { o.Seq = seq } }
func unknown(o *Operation)           { o.Result = Result{} }

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
		{"a lost write", new(past).do(Create, 201, wrote(2, 0)).do(Get, 404), false},
		{"a lost patch", new(past).do(Create, 201, wrote(2, 0)).do(Patch, 200, wrote(3, 0), on(2)).do(Get, 200, saw(2, 0, 0)), false},
		{"a resurrection", new(past).do(Create, 201, wrote(2, 0)).do(Delete, 204).do(Get, 200, saw(2, 0, 0)), false},
		{"two creates", new(past).do(Create, 201, wrote(2, 0)).do(Create, 201, wrote(3, 0)), false},
		{"If-Match passed over", new(past).do(Create, 201, wrote(2, 0)).do(Upsert, 200, wrote(3, 0)).do(Replace, 200, wrote(4, 0), match(2)), false},

		{"an expiry on the second", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Get, 200, saw(2, 10, 2)).at(12).do(Get, 404).do(Create, 201, wrote(3, 12)), true},
		{"a read of what has expired", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(12).do(Get, 200, saw(2, 10, 2)), false},
		{"an early expiry", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Get, 404), false},
		{"expired and replaced", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(12).do(Replace, 200, wrote(3, 12)), false},
		{"renewed, and gone by the old deadline", new(past).at(10).do(Create, 201, wrote(2, 10), living(2)).at(11).do(Upsert, 200, wrote(3, 11), living(2)).at(12).do(Get, 404), false},

		{"unknown and done late", new(past).do(Create, 201, wrote(2, 0), unknown).do(Get, 404).do(Get, 200, saw(2, 0, 0)), true},
		{"unknown and done twice", new(past).do(Upsert, 201, wrote(2, 0), unknown).do(Get, 200, saw(2, 0, 0)).do(Delete, 204).do(Get, 200, saw(2, 0, 0)), false},
		{"felt twice", new(past).do(Create, 201, wrote(2, 0), unknown).do(Delete, 204).do(Delete, 204), false},
		{"refused, and an earlier request done late", new(past).do(Create, 201, wrote(2, 0)).do(Create, 409, wrote(3, 0)).late().do(Delete, 204).do(Get, 200, saw(3, 0, 0)), true},

		{"a Lapse-Seq that goes back", new(past).do(Get, 404, at(3)).do(Get, 404, at(2)), false},
		{"a version beyond its Lapse-Seq", new(past).do(Create, 201, wrote(2, 0), at(1)), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			operations := test.past.operations
			for i := range operations {
				if operations[i].Seq == 0 {
					operations[i].Seq = 100
				}
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
