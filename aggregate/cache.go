package aggregate

import (
	"container/list"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/millrace-go/millrace/internal/streams"
)

const (
	// maxAge is for how long a state in a cache is used after it was loaded. It is also how long an erasure elsewhere
	// may be missed.
	maxAge = 5 * time.Second
	// sweepEvery is how often states that are too old are removed from memory.
	sweepEvery = time.Second
)

// Cache returns a copy of the category that keeps the states of aggregates in memory, in about maxBytes. Copies of that
// category share the cache, except those that Ignore returns. A load of an aggregate in the cache reads only its last
// event, and what came after it. The state is used if that event is still in the stream, at its position with its time,
// so a state does not outlive a crash, failover or restore that loses its events. Times that the program gives to
// events itself weaken that: see event.Event.Time. Commands within a transaction of the caller do not use the cache.
//
// A cache suits many commands, one after the other, on small states of long streams: states are kept as JSON, and each
// load decodes one. The type of the state must satisfy the conditions of Snapshot. A state whose JSON would not decode
// to an equal value is not cached. A cached state is used for at most 5 s, and not after an erasure by this Store. Then
// the aggregate is loaded again, from its snapshot or its stream. After an erasure by another process, a cached state
// may contain erased data for 5 s, and stays in memory for at most another second.
func (c *Category[S]) Cache(maxBytes int) *Category[S] {
	caching := *c
	caching.cache = newCache(maxBytes)
	if maxBytes < 1 && caching.err == nil {
		caching.err = fmt.Errorf("Cache must have 1 or more bytes: %d", maxBytes)
	}
	if err := keptByJSON(reflect.TypeFor[S](), nil); err != nil && caching.err == nil {
		caching.err = fmt.Errorf("the state cannot be in a cache: %w", err)
	}
	return &caching
}

// cache has states of aggregates.
type cache struct {
	mu        sync.Mutex
	max, size int
	states    map[cacheKey]*list.Element
	recent    list.List // of *cached, the most recently used first
	sweeping  bool
}

type cacheKey struct {
	source streams.Source
	stream string
}

// cached is a state in a cache, as JSON.
type cached struct {
	cacheKey
	state []byte
	// from is the loaded[S] of the state, without it, and begun its time.
	from  any
	begun time.Time
}

// cachedOverhead is what a state needs beside its JSON and the names, in bytes.
const cachedOverhead = 300

func (e *cached) size() int { return len(e.state) + len(e.stream) + cachedOverhead }

func newCache(maxBytes int) *cache {
	return &cache{max: maxBytes, states: make(map[cacheKey]*list.Element)}
}

// find returns a state, nil if there is none.
func (c *cache) find(key cacheKey) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.states[key]
	if at == nil {
		return nil
	}
	e := at.Value.(*cached)
	if time.Since(e.begun) >= maxAge {
		c.remove(at)
		return nil
	}
	c.recent.MoveToFront(at)
	return e
}

// keep replaces a state. States that were not used for longest make room for it.
func (c *cache) keep(e *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.states[e.cacheKey]; at != nil {
		c.remove(at)
	}
	if e.size() > c.max {
		return
	}
	c.size += e.size()
	c.states[e.cacheKey] = c.recent.PushFront(e)
	for c.size > c.max {
		c.remove(c.recent.Back())
	}
	if !c.sweeping {
		c.sweeping = true
		time.AfterFunc(sweepEvery, c.sweep)
	}
}

// drop removes a state.
func (c *cache) drop(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.states[key]; at != nil {
		c.remove(at)
	}
}

func (c *cache) remove(at *list.Element) {
	e := c.recent.Remove(at).(*cached)
	delete(c.states, e.cacheKey)
	c.size -= e.size()
}

// sweep removes states that are too old to be used, so that nothing of them stays in memory. It runs once a second
// while there are any.
func (c *cache) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := c.recent.Front(); at != nil; {
		following := at.Next()
		if time.Since(at.Value.(*cached).begun) >= maxAge {
			c.remove(at)
		}
		at = following
	}
	c.sweeping = c.recent.Len() > 0
	if c.sweeping {
		time.AfterFunc(sweepEvery, c.sweep)
	}
}

// recall begins with a state of the cache, if there is one. It returns its last event.
func (l *loaded[S]) recall(c *cache, key cacheKey) *streams.Last {
	e := c.find(key)
	if e == nil {
		return nil
	}
	state, ok := decode[S](e.state)
	if !ok {
		return nil
	}
	*l = e.from.(loaded[S])
	l.State = state
	return &streams.Last{Version: l.Version, Position: l.Position, Time: l.last}
}

// store keeps the state for later loads.
func (l *loaded[S]) store(c *cache, key cacheKey) {
	state, ok := encode(l.State)
	if !ok {
		c.drop(key)
		return
	}
	from := *l
	from.State = *new(S) // callers may change what is in it
	c.keep(&cached{cacheKey: key, state: state, from: from, begun: l.begun})
}
