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

// ApplyOptions are the bounds of a projection's batches.
type ApplyOptions struct {
	// Timeout bounds one call of the handler. Default 30 s.
	Timeout time.Duration
	// AsyncCommit commits the batch without waiting for the disk.
	AsyncCommit bool
}

// DeliverOptions are the bounds of a projection's deliveries.
type DeliverOptions struct {
	// Timeout bounds one call of the handler. Default 30 s.
	Timeout time.Duration
	// Policy bounds how much may be rejected before the projection stops.
	Policy Policy
	// Trust ends deliveries when the node cannot be sure of its leases any more. Default: it always can.
	Trust LeaseDeadline
	// Slot waits for a connection's slot before each statement of a delivery, acknowledgements above all, and returns a
	// function that releases it. Default: statements do not wait.
	Slot func(ctx context.Context) (release func(), err error)
}
