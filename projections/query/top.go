package query

import "container/heap"

// top keeps the first n of many positions. It is a heap with the last of them at its root:
// a new position is compared with that one alone, and most of a long scan end there. The
// cost is O(log n) for those that enter.
type top struct {
	most int
	held lastFirst
}

// lastFirst implements heap.Interface; its root is the last position of the query's order.
type lastFirst []position

func (h lastFirst) Len() int           { return len(h) }
func (h lastFirst) Less(i, j int) bool { return h[i].compare(h[j]) > 0 }
func (h lastFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lastFirst) Push(x any)        { *h = append(*h, x.(position)) }
func (h *lastFirst) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = position{}
	*h = (*h)[:last]
	return p
}

// add adds a copy of a position.
func (t *top) add(p position) {
	switch {
	case len(t.held) < t.most:
		heap.Push(&t.held, p.clone())
	case p.compare(t.held[0]) < 0:
		t.held[0] = p.clone()
		heap.Fix(&t.held, 0)
	}
}

// inOrder removes and returns the positions in order.
func (t *top) inOrder() []position {
	out := make([]position, len(t.held))
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = heap.Pop(&t.held).(position)
	}
	return out
}
