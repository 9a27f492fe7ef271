package engine

import (
	"context"
	"time"
)

// Run runs one batch of a projection: it gives the events to the handler, parks those that are behind others, resolves the
// dead letter that is replayed, advances the checkpoint from lease.Checkpoint to batch.To under the lease's fence, and
// commits all or nothing. A delivery works in steps, each of them fenced. It returns a *PartialResult if it did not get to the
// end, or rejected events.
type Run func(ctx context.Context, lease Lease, batch Batch) error

// ApplyOptions are settings of millrace.Projection for its batches. They have their defaults.
type ApplyOptions struct {
	Timeout     time.Duration
	AsyncCommit bool
}

// DeliverOptions are settings of millrace.Projection for its deliveries, with their defaults, and what a delivery needs of its
// runtime.
type DeliverOptions struct {
	Timeout time.Duration
	Policy  Policy
	// Trust ends deliveries when the node cannot be sure of its leases any more.
	Trust LeaseDeadline
	// Slot waits for a connection's slot before each statement of a delivery, acknowledgements above all, and returns a
	// function that releases it.
	Slot func(ctx context.Context) (release func(), err error)
}
