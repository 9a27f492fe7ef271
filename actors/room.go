package actors

import "sync"

// aheadBytes limits the memory for the events that projections have read before they need them, of all projections of a
// node. With more projections behind than it has room for, the others read one batch at a time.
const aheadBytes = 64 << 20

// room is the memory that is left for events.
type room struct {
	mu   sync.Mutex
	left int
}

// held is what a projection has of the room, in bytes. closed reports that it gets no more.
type held struct {
	bytes  int
	closed bool
}

// hold makes h hold n bytes, and reports whether there was room. A projection gets at most half of what is left, so
// that there is room for those that need little.
func (r *room) hold(h *held, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	more := n - h.bytes
	if more > 0 && (h.closed || more > r.left/2) {
		return false
	}
	r.left -= more
	h.bytes = n
	return true
}

// close takes back what h has. It gets no more.
func (r *room) close(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += h.bytes
	*h = held{closed: true}
}
