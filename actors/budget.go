package actors

import (
	"container/list"
	"sync"
	"time"
)

// tailBytes limits the memory for the windows of all feeds. With less, the projections of busy tenants read the same
// events one by one. More helps little: a window keeps events for 5 s, and has at most 8 MiB.
const tailBytes = 64 << 20

// windowAge is how long a feed keeps an event. A projection that is slower reads the event again.
const windowAge = 5 * time.Second

// budget limits the memory of the windows of all feeds of a node, and the age of their events.
type budget struct {
	most int
	age  time.Duration

	mu     sync.Mutex
	used   int
	shares list.List // of *share; the share that grew last is at the end
}

// share is the part of the budget that one feed uses.
type share struct {
	bytes   int
	giveWay func() // empties the window; it must not block
	at      *list.Element
}

func newBudget(most int) *budget { return &budget{most: most, age: windowAge} }

// use changes how much a share uses. If all shares together use too much, those that have not grown for the longest
// time give way.
func (b *budget) use(s *share, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	grown := bytes > s.bytes
	b.set(s, bytes)
	if grown {
		b.shares.MoveToBack(s.at)
	}
	for b.used > b.most {
		victim := b.shares.Front().Value.(*share)
		b.set(victim, 0)
		victim.giveWay()
	}
}

// set changes how much a share uses. A share that uses nothing is not listed.
func (b *budget) set(s *share, bytes int) {
	b.used += bytes - s.bytes
	s.bytes = bytes
	switch {
	case bytes == 0 && s.at != nil:
		b.shares.Remove(s.at)
		s.at = nil
	case bytes > 0 && s.at == nil:
		s.at = b.shares.PushBack(s)
	}
}
