package projections

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

	"github.com/RaduBerinde/btreemap"

	"github.com/lapsedb/lapse/schema"
)

// waiting is one expiry order of a collection. Most documents of a simulation are replaced
// or renewed before their deadline, and sorting them would be wasted. So a document is in
// an unsorted bucket of its second until a scan reaches that second:
//
//	add ─► bucket of its second ─► reach ─► sorted ─► scan
//	            └── remove ───────────────────┘── remove
//
// Invariant: sorted has the documents up to reached, buckets those beyond. A document
// knows its index in the bucket, so removing it takes constant time. Empty slots, and
// seconds of removed buckets, are cleaned up when they outnumber the rest by far, which
// costs a constant for each removal.
type waiting struct {
	reached int64                                      // the last second that a scan asked for
	sorted  *btreemap.BTreeMap[place, *memoryDocument] // up to reached
	buckets map[int64]*bucket                          // later ones
	seconds secondHeap                                 // of all buckets, and of some removed ones
	steps   *int                                       // see Memory.Steps
}

// place is the key of a document in its expiry order.
type place struct {
	second int64
	id     schema.DocumentID
}

// bucket holds the documents of one second, in no order.
type bucket struct {
	documents []*memoryDocument // nil: the document has left
	count     int               // of documents that have not left
}

// inSorted is the index of a document that is in no bucket.
const inSorted = -1

// degree of the tree: a node has at most twice as many documents.
const degree = 32

func newWaiting(steps *int) waiting {
	return waiting{steps: steps, buckets: make(map[int64]*bucket), sorted: btreemap.New[place, *memoryDocument](degree, func(a, b place) int {
		*steps++
		if a.second != b.second {
			return cmp.Compare(a.second, b.second)
		}
		return cmp.Compare(a.id, b.id)
	})}
}

// add adds a document at a second. A second that a scan has passed is sorted at once.
func (w *waiting) add(second int64, d *memoryDocument) {
	if second <= w.reached {
		w.sort(second, d)
		return
	}
	b := w.buckets[second]
	if b == nil {
		b = new(bucket)
		w.buckets[second] = b
		heap.Push(&w.seconds, second)
	}
	d.queued = len(b.documents)
	b.documents = append(b.documents, d)
	b.count++
}

func (w *waiting) sort(second int64, d *memoryDocument) {
	d.queued = inSorted
	w.sorted.ReplaceOrInsert(place{second, d.id}, d)
}

func (w *waiting) remove(second int64, d *memoryDocument) {
	if d.queued == inSorted {
		w.sorted.Delete(place{second, d.id})
		return
	}
	b := w.buckets[second]
	b.documents[d.queued] = nil
	b.count--
	switch {
	case b.count == 0:
		delete(w.buckets, second)
		if len(w.seconds) > 2*len(w.buckets)+64 {
			w.seconds = slices.AppendSeq(w.seconds[:0], maps.Keys(w.buckets))
			heap.Init(&w.seconds)
		}
	case len(b.documents) > 4*b.count+64:
		b.squeeze()
	}
}

// squeeze drops the slots of documents that have left.
func (b *bucket) squeeze() {
	b.documents = slices.Clone(slices.DeleteFunc(b.documents, func(d *memoryDocument) bool { return d == nil }))
	for i, d := range b.documents {
		d.queued = i
	}
}

// reach sorts the documents up to a second. Afterwards no bucket has a second up to
// w.reached.
func (w *waiting) reach(second int64) {
	w.reached = max(w.reached, second)
	for len(w.seconds) > 0 && w.seconds[0] <= w.reached {
		*w.steps++
		first := heap.Pop(&w.seconds).(int64)
		b := w.buckets[first]
		if b == nil {
			continue // it was removed
		}
		delete(w.buckets, first)
		for _, d := range b.documents {
			*w.steps++
			if d != nil {
				w.sort(first, d)
			}
		}
	}
}

// first returns the first second with a bucket.
func (w *waiting) first() (second int64, ok bool) {
	for len(w.seconds) > 0 && w.buckets[w.seconds[0]] == nil {
		*w.steps++
		heap.Pop(&w.seconds)
	}
	if len(w.seconds) == 0 {
		return 0, false
	}
	return w.seconds[0], true
}

// scan is Memory.Scan for one expiry order. Beyond the sorted documents, the first bucket
// has the next second: its documents need no order for that.
func (w *waiting) scan(after Entry, last int64, visit func(Entry) bool) (next int64, more bool) {
	w.reach(max(last, after.Second))
	for at, d := range w.sorted.Ascend(btreemap.GT(place{after.Second, after.ID}), btreemap.Max[place]()) {
		if at.second > last {
			return at.second, true
		}
		*w.steps++
		if !visit(Entry{Second: at.second, ID: d.id, Meta: d.Meta, Warned: d.warned}) {
			return 0, false
		}
	}
	return w.first()
}

// secondHeap is a min-heap of seconds since 1970.
type secondHeap []int64

func (h secondHeap) Len() int           { return len(h) }
func (h secondHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h secondHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *secondHeap) Push(second any)   { *h = append(*h, second.(int64)) }
func (h *secondHeap) Pop() any {
	last := len(*h) - 1
	second := (*h)[last]
	*h = (*h)[:last]
	return second
}
