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

// hold gives h at least n bytes, and reports whether there was room.
func (r *room) hold(h *held, n int) bool {
	if n == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	more := max(0, n-h.bytes)
	if h.closed || more > r.left {
		return false
	}
	r.left -= more
	h.bytes += more
	return true
}

// release takes back what h has.
func (r *room) release(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += h.bytes
	h.bytes = 0
}

// close takes back what h has. It gets no more.
func (r *room) close(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += h.bytes
	*h = held{closed: true}
}
