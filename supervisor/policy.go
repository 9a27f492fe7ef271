// Package supervisor starts, watches and restarts the actors of a runtime. It gates what needs the server behind one probe while
// the server is away, and stops everything in order. What becomes of failures is decided by each projection's machine.
package supervisor

import (
	"math/rand/v2"
	"time"

	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// retryDelay returns the delay before the retry that follows the attempt of that number, from 1, with jitter.
func retryDelay(p projection.RetryPolicy, attempt int) time.Duration {
	return machine.Delay(p, attempt, rand.Float64())
}

// mendedEvery is how often it is looked whether a fault of the configuration was mended.
const mendedEvery = 15 * time.Second

func faultPolicy() projection.RetryPolicy { return machine.FaultPolicy() }
