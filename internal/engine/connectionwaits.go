package engine

import (
	"sync/atomic"
	"time"
)

// ConnectionWaits are the waits for connections of a store since it was opened.
type ConnectionWaits struct {
	// Count counts the waits that ended with a connection, and Duration is how long these took together.
	Count    int64
	Duration time.Duration
	// GivenUp counts the waits that ended without a connection, because their contexts ended.
	GivenUp int64
}

// WaitCounter counts ConnectionWaits. It is safe for concurrent use.
type WaitCounter struct{ count, duration, givenUp atomic.Int64 }

// Ended counts a wait that ended with a connection.
func (c *WaitCounter) Ended(began time.Time) {
	c.count.Add(1)
	c.duration.Add(int64(time.Since(began)))
}

// GaveUp counts a wait that ended without a connection.
func (c *WaitCounter) GaveUp() { c.givenUp.Add(1) }

// Waits returns what was counted.
func (c *WaitCounter) Waits() ConnectionWaits {
	return ConnectionWaits{Count: c.count.Load(), Duration: time.Duration(c.duration.Load()), GivenUp: c.givenUp.Load()}
}
