package projections

import (
	"reflect"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"pgregory.net/rapid"
)

// TestRecords: encoded records decode to the same, and truncated ones to an error.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		m := Meta{Version: schema.Version(rapid.Uint64().Draw(t, "version")), TS: number().Draw(t, "ts"),
			TTL: schema.TTL(rapid.Int32Range(-1, schema.MaxTTL).Draw(t, "ttl")), Size: int64(len(body)), Sum: SumOf(body),
			Held: rapid.Bool().Draw(t, "held"), Content: schema.Version(rapid.SampledFrom([]uint64{0, 1, 1 << 40}).Draw(t, "content"))}
		value := appendRecord(nil, m, body)
		if r, err := decodeRecord(value); err != nil || r.Meta != m || string(r.Body) != string(body) {
			t.Errorf("%+v %q is read back as %+v (%v)", m, body, r, err)
		}
		if r, err := decodeRecord(value[:rapid.IntRange(0, 2).Draw(t, "length")]); err == nil {
			t.Errorf("%x is read as %+v", value, r)
		}
		st := stats{documents: number().Draw(t, "documents"), bytes: number().Draw(t, "bytes"), own: number().Draw(t, "own"), inherited: number().Draw(t, "inherited")}
		if got, err := decodeStats(st.encode()); err != nil || got != st {
			t.Errorf("%+v is read back as %+v (%v)", st, got, err)
		}
	})
	c := &schema.Collection{Name: "orders", Incarnation: 5, Version: 7, Time: 1000_500, Properties: schema.Properties{
		DefaultTTL: 10, IndexingMode: schema.Lazy, IncludedPaths: []string{"/a", "/b~1c"}, Metadata: map[string]string{"owner": "shop", "<": "é"}}}
	if got, err := decodeCollection("orders", encodeCollection(c)); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v is read back as %+v (%v)", c, got, err)
	}
}
