package cosmos

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lapsedb/lapse/cosmos/sql"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// maxSpans is the most spans of a selection; a query of more reads more documents than needed.
const maxSpans = 100

// selection is what lapse is asked for, to find the items of a query: spans in the order of
// documents' ids, each a prefix of ids. What a query reads, from the narrowest to the
// widest:
//
//   - documents by id, where the query names the whole key and the item's id (exact)
//   - the documents of a partition, or of the beginning of a hierarchical key, by idPrefix
//   - those with a value at an indexed path (where)
//   - all
//
// A selection only narrows: it may have documents that the query does not want, never the
// reverse. So each is checked again by SQL.
type selection struct {
	prefixes []string // sorted; one empty prefix for all
	exact    bool     // the prefixes are whole ids
	single   bool     // all is in one partition
	start    string   // effective partition keys from here on, "" for all
	end      string   // and before
	where    string   // a condition of lapse, "" for none
	index    string   // path of the index that it uses, as in an indexing policy
	params   json.RawMessage
}

// everything reports whether all items are selected, but for a condition.
func (s *selection) everything() bool {
	return !s.exact && s.prefixes[0] == "" && s.start == "" && s.end == ""
}

// selection returns what has to be read for a query. The header counts before the query: a
// client that gives a partition key reads that one, whatever its condition says.
func (x *exchange) selection(c *container, q *sql.Query) (*selection, error) {
	key, err := x.keyHeader()
	if err != nil {
		return nil, err
	}
	if len(key) > len(c.paths) {
		return nil, c.checkKey(key)
	}
	s := &selection{start: x.Header.Get("X-Ms-Start-Epk"), end: x.Header.Get("X-Ms-End-Epk")}
	equal := q.Equalities()
	candidates := make([][]values.Value, 0, len(c.paths)+1)
	for i := range c.paths {
		if i < len(key) {
			candidates = append(candidates, []values.Value{key[i]})
		} else if found := valuesOf(equal, c.paths[i]); found != nil {
			candidates = append(candidates, found)
		} else {
			break
		}
	}
	s.single = len(key) > 0
	if !s.single && len(candidates) == len(c.paths) {
		s.single = !slices.ContainsFunc(candidates, func(list []values.Value) bool { return len(list) > 1 })
	}
	s.span(c, candidates, valuesOf(equal, []string{"id"}))
	s.narrow(c, equal)
	return s, nil
}

// valuesOf returns the values that a query demands at a path, nil if it demands none.
func valuesOf(equal []sql.Equality, path []string) []values.Value {
	for _, e := range equal {
		if slices.Equal(e.Path, path) {
			return e.Values
		}
	}
	return nil
}

// span sets the prefixes for the values that the first paths of the partition key may have,
// and the ids that the item may have; nil for any.
func (s *selection) span(c *container, candidates [][]values.Value, ids []values.Value) {
	if c.byID() {
		s.prefixes, s.exact = []string{""}, false
		if len(candidates) > 0 && len(candidates[0]) <= maxSpans {
			s.prefixes, s.exact = c.documentsOf(partitionKeys(candidates), nil), true
		}
		return
	}
	keys := partitionKeys(candidates)
	if len(keys[0]) == len(c.paths) && ids != nil && len(keys)*len(ids) <= maxSpans {
		s.prefixes, s.exact = c.documentsOf(keys, ids), true
		return
	}
	for _, key := range keys {
		s.prefixes = append(s.prefixes, key.prefix())
	}
	s.prefixes = sorted(s.prefixes)
}

func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// partitionKeys returns all combinations of values, or of those of the first paths where there
// would be too many.
func partitionKeys(candidates [][]values.Value) []partitionKey {
	keys := []partitionKey{{}}
	for _, list := range candidates {
		var longer []partitionKey
		for _, key := range keys {
			for _, v := range list {
				longer = append(longer, append(key[:len(key):len(key)], v))
			}
		}
		if len(longer) > maxSpans {
			break
		}
		keys = longer
	}
	return keys
}

// documentsOf returns the ids of the documents with these keys and ids of items.
func (c *container) documentsOf(keys []partitionKey, ids []values.Value) (documents []string) {
	for _, key := range keys {
		if c.byID() {
			ids = key
		}
		for _, id := range ids {
			if id.Kind() != values.String {
				continue
			}
			if document, _, err := c.documentID(key, string(id.Text())); err == nil {
				documents = append(documents, document)
			}
		}
	}
	return sorted(documents)
}

// narrow hands down what the query demands of an indexed path. lapse reads by idPrefix or
// by an index, not by both, so a partition comes before an index.
func (s *selection) narrow(c *container, equal []sql.Equality) {
	if s.exact || s.prefixes[0] != "" || c.info.IndexingMode != schema.Consistent {
		return
	}
	for _, e := range equal {
		if len(e.Values) != 1 || e.Values[0].Kind() >= values.Array || isID(e.Path) || isSystem(e.Path[0]) || !slices.Contains(c.info.IncludedPaths, e.Path.String()) {
			continue
		}
		s.where, s.params = sql.PathOf(e.Path)+" == params.value", json.RawMessage(`{"value":`+string(e.Values[0])+`}`)
		s.index = e.Path.String() + "/?"
		return
	}
}

// utilization says which index a query uses, as an index metric.
func (s *selection) utilization() string {
	var used []byte
	if s.index != "" {
		used = append(schema.AppendString([]byte(`{"FilterExpression":"","IndexSpec":`), s.index), `,"FilterPreciseSet":true,"IndexPreciseSet":true,"IndexImpactScore":"High"}`...)
	}
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"UtilizedSingleIndexes":[%s],"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"PotentialCompositeIndexes":[]}`, used))
}

// inRange reports whether an item is in the range of effective partition keys.
func (s *selection) inRange(c *container, it values.Value, id string) bool {
	if s.start == "" && s.end == "" {
		return true
	}
	key, err := c.keyOf(it, id)
	if err != nil {
		return false
	}
	epk := key.effective(len(c.paths) > 1)
	return epk >= s.start && (s.end == "" || epk < s.end)
}

// reader reads the items of a selection one by one. It is at a place at any time, so that
// a page can end after any item. Documents that are no items, or out of the range, are
// read and left out.
type reader struct {
	x       *exchange
	c       *container
	s       *selection
	columns []string // pointers of all that is needed of a document; nil for the whole
	at      place    // of the last item
	seq     uint64

	documents []values.Value // of the page, that are not read yet
	ids       []string       // of documents to fetch, if they are known
	cursor    string         // of the next page
	begun     bool           // a page of the span was read
	examined  int
	bytes     int  // of documents examined
	limit     int  // of documents examined for this page, 0 for none
	chunk     int  // documents of the next request, 0 for maxPage
	paused    bool // at the limit: the query may go on at the place
}

// columns returns what it takes to see whether a document is an item.
func (c *container) columns() []string {
	all := []string{"/id"}
	if c.byID() {
		return all
	}
	for _, path := range c.paths {
		all = append(all, values.Pointer(path).String())
	}
	return sorted(append(all, "/"+itemID))
}

// next returns the next item; ok is false after the last. Documents up to the place were
// on an earlier page. They are read again where a page of lapse was cut in between, but
// not given again.
func (r *reader) next() (it item, ok bool, err error) {
	for {
		for len(r.documents) > 0 {
			document := r.documents[0]
			r.documents = r.documents[1:]
			id := string(document.At([]string{"id"}).Text())
			if r.at.After != "" && (id < r.at.After || id == r.at.After && r.at.Given == 0) {
				continue
			}
			r.at.After, r.at.Given = id, 0
			if it.id, ok = r.c.itemOf(id, document); !ok || !r.s.inRange(r.c, document, it.id) {
				continue
			}
			if it.body = document; r.columns == nil {
				it.body = r.c.toItem(document, id, it.id)
			}
			return it, true, nil
		}
		if done, err := r.fetch(); done || err != nil {
			return item{}, false, err
		}
	}
}

// more reports whether documents follow that were not read.
func (r *reader) more() bool {
	return len(r.documents) > 0 || len(r.ids) > 0 || r.cursor != "" || !r.s.exact && r.at.Span+1 < len(r.s.prefixes)
}

// fetch reads the next page of documents; done says that there is none. The cases, in
// order: pause, limit, ids, end of a span, next page of a span.
func (r *reader) fetch() (done bool, err error) {
	switch {
	case r.limit > 0 && r.examined >= r.limit && r.more():
		if r.cursor != "" {
			r.at.Cursor = r.cursor
		}
		r.paused = true
		return true, nil
	case r.examined >= maxExamined:
		return false, badRequest("the query examines more than %d documents: narrow it by its partition key", maxExamined)
	case r.s.exact:
		return r.fetchExact()
	case r.begun && r.cursor == "":
		r.at = place{Span: r.at.Span + 1}
	case r.begun:
		r.at.Cursor = r.cursor
	}
	if r.at.Span >= len(r.s.prefixes) {
		return true, nil
	}
	r.begun = true
	body, _ := json.Marshal(r.request()) // strings and a number
	answer, err := r.x.do("query", r.c.name(), "", body)
	if err != nil {
		return false, err
	}
	r.take(answer.Seq, values.Value(answer.Body).At([]string{"documents"}))
	r.cursor = string(values.Value(answer.Body).At([]string{"cursor"}).Text())
	r.chunk = min(4*r.chunk, maxPage) // its condition seems to hold for few
	return false, nil
}

func (r *reader) take(seq uint64, documents values.Value) {
	r.seq = seq
	documents.Elements(func(v values.Value) bool {
		r.add(v)
		return true
	})
}

func (r *reader) add(document values.Value) {
	r.documents = append(r.documents, document)
	r.examined++
	r.bytes += len(document)
}

// queryRequest is a query of lapse.
type queryRequest struct {
	Where    string          `json:"where,omitempty"`
	Params   json.RawMessage `json:"params,omitempty"`
	IDPrefix string          `json:"idPrefix,omitempty"`
	Select   []string        `json:"select,omitempty"`
	Limit    int             `json:"limit"`
	Cursor   string          `json:"cursor,omitempty"`
}

func (r *reader) request() queryRequest {
	return queryRequest{Where: r.s.where, Params: r.s.params, IDPrefix: r.s.prefixes[r.at.Span], Select: r.columns, Limit: cmp.Or(r.chunk, maxPage), Cursor: r.at.Cursor}
}

// fetchExact reads the next documents whose ids are known, from the place on.
func (r *reader) fetchExact() (done bool, err error) {
	if !r.begun {
		first, _ := slices.BinarySearch(r.s.prefixes, r.at.After)
		r.begun, r.ids = true, r.s.prefixes[first:]
	}
	if len(r.ids) == 0 {
		return true, nil
	}
	contents, seq, err := r.x.contents(r.c, r.ids)
	if err != nil {
		return false, err
	}
	r.seq, r.ids = seq, r.ids[len(contents):]
	for _, content := range contents {
		if content != nil {
			r.add(content)
		}
	}
	return false, nil
}
