// Package weak breaks one protection at a time, so that the chaos suite can show that it would notice. Nothing but the
// suite's processes break anything; everywhere else a protection costs one look at an atomic.
package weak

import (
	"sync/atomic"
	"time"
)

// Protection is what can be broken.
type Protection string

const (
	// Fence: neither the lease is looked at nor the owner and the epoch compared.
	Fence Protection = "fence"
	// RaisingFence: the fence compares, but a write that it refuses raises nothing, and what was sent along commits.
	RaisingFence Protection = "raising-fence"
	// ServerClock: leases are judged and extended by the clock of the node, which is wrong.
	ServerClock Protection = "server-clock"
	// Settling: what is visible is read, whatever may still appear below it.
	Settling Protection = "settling"
	// FaultClasses: faults of the infrastructure are taken for the handler's.
	FaultClasses Protection = "fault-classes"
	// Listening: a session that is opened anew does not listen.
	Listening Protection = "listening"
	// SeenLock: a session lock that is missing means death, though it was never seen.
	SeenLock Protection = "seen-lock"
)

// All are the protections.
var All = []Protection{Fence, RaisingFence, ServerClock, Settling, FaultClasses, Listening, SeenLock}

// Skew is how wrong a node's clock is.
const Skew = time.Hour

var broken atomic.Pointer[Protection]

// Break breaks a protection for the rest of the process, and no other.
func Break(p Protection) { broken.Store(&p) }

// Broken tells whether the protection is broken.
func Broken(p Protection) bool {
	b := broken.Load()
	return b != nil && *b == p
}
