package expiry

import "container/heap"

// heapTimer is what the wheel is measured against: container/heap with an
// index map, as in that package's own example of a priority queue.
type heapTimer[K comparable] struct {
	index map[K]*heapItem[K]
	items heapItems[K]
}

type heapItem[K comparable] struct {
	key      K
	at       int64
	position int
}

func newHeapTimer[K comparable]() *heapTimer[K] {
	return &heapTimer[K]{index: make(map[K]*heapItem[K])}
}

func (h *heapTimer[K]) Set(key K, at int64) {
	if it, armed := h.index[key]; armed {
		it.at = at
		heap.Fix(&h.items, it.position)
		return
	}
	it := &heapItem[K]{key: key, at: at}
	h.index[key] = it
	heap.Push(&h.items, it)
}

func (h *heapTimer[K]) Remove(key K) {
	if it, armed := h.index[key]; armed {
		heap.Remove(&h.items, it.position)
		delete(h.index, key)
	}
}

func (h *heapTimer[K]) Next() (int64, bool) {
	if len(h.items) == 0 {
		return 0, false
	}
	return h.items[0].at, true
}

func (h *heapTimer[K]) Advance(now int64, fire func(K, int64)) {
	for len(h.items) > 0 && h.items[0].at <= now {
		it := heap.Pop(&h.items).(*heapItem[K])
		delete(h.index, it.key)
		fire(it.key, it.at)
	}
}

type heapItems[K comparable] []*heapItem[K]

func (s heapItems[K]) Len() int           { return len(s) }
func (s heapItems[K]) Less(i, j int) bool { return s[i].at < s[j].at }

func (s heapItems[K]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].position, s[j].position = i, j
}

func (s *heapItems[K]) Push(x any) {
	it := x.(*heapItem[K])
	it.position = len(*s)
	*s = append(*s, it)
}

func (s *heapItems[K]) Pop() any {
	old := *s
	last := len(old) - 1
	it := old[last]
	old[last] = nil
	*s = old[:last]
	return it
}
