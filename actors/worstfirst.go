package actors

import (
	"cmp"
	"slices"
)

// tenantLag has the projections of a tenant that are behind. It is as far behind as the worst of them.
type tenantLag struct {
	projections worstFirst[*registered]
	place       int
}

func (t *tenantLag) behind() int64      { return t.projections.behindAt(0) }
func (t *tenantLag) setPlace(place int) { t.place = place }

func (p *registered) setPlace(place int) { p.place = place }

// worstFirst is a container/heap of what is behind, the furthest first. The place of an element is one more than its
// index, 0 if it is in no heap.
type worstFirst[T interface {
	behind() int64
	setPlace(place int)
}] []T

func (h worstFirst[T]) Len() int           { return len(h) }
func (h worstFirst[T]) Less(i, j int) bool { return h[i].behind() > h[j].behind() }
func (h worstFirst[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].setPlace(i + 1)
	h[j].setPlace(j + 1)
}

// Push implements heap.Interface.
func (h *worstFirst[T]) Push(x any) {
	*h = append(*h, x.(T))
	x.(T).setPlace(len(*h))
}

// Pop implements heap.Interface.
func (h *worstFirst[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = *new(T)
	*h = (*h)[:last]
	x.setPlace(0)
	return x
}

// first returns the n elements that are furthest behind. After the first, each is a child, in the heap, of an earlier
// one.
func (h worstFirst[T]) first(n int) (found []T) {
	candidates := []int{0}
	for len(found) < n && len(candidates) > 0 {
		slices.SortFunc(candidates, func(a, b int) int { return cmp.Compare(h.behindAt(b), h.behindAt(a)) })
		at := candidates[0]
		if at >= len(h) {
			break
		}
		found = append(found, h[at])
		candidates = append(candidates[1:], 2*at+1, 2*at+2)
	}
	return found
}

// behindAt returns 0 past the end of the heap.
func (h worstFirst[T]) behindAt(i int) int64 {
	if i >= len(h) {
		return 0
	}
	return h[i].behind()
}
