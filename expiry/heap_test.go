package expiry

import "container/heap"

// heapTimers is the wheel's peer in benchmarks: container/heap as in that package's
// example of a priority queue; the owner holds the item.
type heapTimers struct{ items heapItems }

type heapItem struct {
	value *int
	at    int64
	index int // in the heap, or -1
}

func (h *heapTimers) Set(it *heapItem, at int64) {
	it.at = at
	if it.index < 0 {
		heap.Push(&h.items, it)
	} else {
		heap.Fix(&h.items, it.index)
	}
}

func (h *heapTimers) Next() (int64, bool) {
	if len(h.items) == 0 {
		return 0, false
	}
	return h.items[0].at, true
}

func (h *heapTimers) Advance(now int64, fire func(*heapItem, int64)) {
	for len(h.items) > 0 && h.items[0].at <= now {
		it := heap.Pop(&h.items).(*heapItem)
		fire(it, it.at)
	}
}

type heapItems []*heapItem

func (s heapItems) Len() int           { return len(s) }
func (s heapItems) Less(i, j int) bool { return s[i].at < s[j].at }

func (s heapItems) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *heapItems) Push(x any) {
	it := x.(*heapItem)
	it.index = len(*s)
	*s = append(*s, it)
}

func (s *heapItems) Pop() any {
	old := *s
	last := len(old) - 1
	it := old[last]
	old[last] = nil
	it.index = -1
	*s = old[:last]
	return it
}
