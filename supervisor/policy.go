// Package supervisor starts, watches and restarts the actors of a runtime. It is part of the engine and promises no
// compatibility.
//
// It is authoritative for which actors run: one for each lease that the node asked it to run, by the row of the lease, and a feed
// for each of their tenants. It knows nothing of leases beyond that. An actor that crashed or stands still is started again after
// a delay, under the same lease; a projection that crashed while it drained is reported to be drained instead. A projection that
// is claimed anew starts when the actor of the earlier lease has ended.
//
// It gates what needs the server behind one probe while the server is away. To stop, it has the node release all leases, and
// stops all actors then. What becomes of failures is decided by each projection's machine.
package supervisor

import (
	"math/rand/v2"
	"time"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/machine"
)

// faultDelay returns the delay after the last of that many faults.
func faultDelay(faults int) time.Duration {
	return backoff.Delay(machine.FaultPolicy(), faults, rand.Float64())
}

// mendedEvery is how often it is looked whether a fault of the configuration was mended.
const mendedEvery = 15 * time.Second
