package projections

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"slices"
)

// waiting is one expiry order of a collection: a bucket of documents for each
// second. A bucket is sorted only when a scan reaches its second; most documents
// leave it before.
type waiting struct {
	buckets map[int64]*bucket
	seconds secondHeap // of all buckets, and of some removed ones
}

// bucket holds the documents of one second.
type bucket struct {
	documents []*memoryDocument // nil: the document has left
	count     int               // of documents that have not left
	sorted    bool              // by ID
}

func (w *waiting) add(second int64, d *memoryDocument) {
	b := w.buckets[second]
	if b == nil {
		if w.buckets == nil {
			w.buckets = make(map[int64]*bucket)
		}
		b = new(bucket)
		w.buckets[second] = b
		heap.Push(&w.seconds, second)
	}
	d.queued = len(b.documents)
	b.documents = append(b.documents, d)
	b.count++
	b.sorted = false
}

func (w *waiting) remove(second int64, d *memoryDocument) {
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
	b.number()
}

func (b *bucket) number() {
	for i, d := range b.documents {
		d.queued = i
	}
}

func (b *bucket) sort() {
	if b.sorted {
		return
	}
	b.squeeze()
	slices.SortFunc(b.documents, func(a, b *memoryDocument) int { return cmp.Compare(a.id, b.id) })
	b.number()
	b.sorted = true
}

// scan is Memory.Scan for one expiry order.
func (w *waiting) scan(after Entry, last int64, visit func(Entry) bool) (next int64, more bool) {
	var scanned []int64 // seconds to put back
	defer func() {
		for _, second := range scanned {
			heap.Push(&w.seconds, second)
		}
	}()
	for previous := int64(math.MinInt64); len(w.seconds) > 0; {
		second := heap.Pop(&w.seconds).(int64)
		b := w.buckets[second]
		if b == nil || second == previous {
			continue // the bucket was removed, or removed and made again
		}
		previous = second
		scanned = append(scanned, second)
		if second < after.Second {
			continue
		}
		waits := func(d *memoryDocument) bool {
			return d != nil && (second > after.Second || d.id > after.ID)
		}
		if second > last {
			if slices.ContainsFunc(b.documents, waits) {
				return second, true
			}
			continue
		}
		b.sort()
		for _, d := range b.documents {
			if waits(d) && !visit(Entry{Second: second, ID: d.id, Meta: d.Meta, Warned: d.warned}) {
				return 0, false
			}
		}
	}
	return 0, false
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
