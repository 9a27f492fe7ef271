package projection

import "errors"

// Errors about the state of a projection.
var (
	// ErrUnknownProjection is returned if no node has registered a projection of that name.
	ErrUnknownProjection = errors.New("unknown projection")
	// ErrRetired is returned if the projection was renamed, replaced by another version, or forgotten. The error's text
	// says which, and names the successor. Nodes neither run nor create a projection of that name.
	ErrRetired = errors.New("the projection is retired")
	// ErrExists is returned if a projection of that name exists already.
	ErrExists = errors.New("a projection of that name exists")
	// ErrInUse is returned if living nodes register the projection, or hold its lease. The error's text names them.
	ErrInUse = errors.New("the projection is in use")
	// ErrPaused is returned if a projection is paused.
	ErrPaused = errors.New("projection is paused")
	// ErrResumed is returned by a pause if the projection, or its tenant, was resumed before it had stopped.
	ErrResumed = errors.New("it was resumed meanwhile")
	// ErrFailed is returned if a projection has failed. The error's text has the reason.
	ErrFailed = errors.New("projection failed")
	// ErrLeaseLost is returned if a write was refused because another owner, or a later epoch, holds the lease, or
	// because the checkpoint is not where the writer expected it.
	ErrLeaseLost = errors.New("lease lost")
	// ErrLeaseUnconfirmed is the cause of the end of a delivery's context if the node cannot be sure of its leases any
	// more.
	ErrLeaseUnconfirmed = errors.New("the node cannot be sure of its leases any more")
)

// Errors of handlers.
var (
	// ErrTimeout is the error of a handler that did not return within Projection.Timeout.
	ErrTimeout = errors.New("the handler's timeout passed")
	// ErrLockWait is returned if the timeout passed while the batch's session waited for another session's lock.
	ErrLockWait = errors.New("the timeout passed while waiting for a lock")
	// ErrHandlerPanic is the error of a handler that panicked.
	ErrHandlerPanic = errors.New("the handler panicked")
	// ErrAbandoned is the error of a handler that did not return after its context was cancelled. Its connection, if it
	// had one, was closed, so that nothing of it can commit. Its goroutine was abandoned.
	ErrAbandoned = errors.New("the handler did not return after its context was cancelled")
	// ErrProcessDied is the error of an attempt during which the process or the database server ended. It is recorded
	// before the handler runs, for events that seem to end processes, and stays if the attempt reports nothing else.
	ErrProcessDied = errors.New("the process or the database server ended while the handler ran")
	// ErrMissingObject is wrapped in the reason of a projection that waits for a table, column, function, schema or
	// privilege.
	ErrMissingObject = errors.New("the handler needs an object or a privilege that is missing in the database")
	// ErrDeliveryOver is returned by Delivery.Ack and Delivery.Reject after the delivery has ended.
	ErrDeliveryOver = errors.New("the delivery is over")
)

// Errors about dead letters.
var (
	// ErrDeadLetterNotFound is returned if a projection has no dead letter with that id.
	ErrDeadLetterNotFound = errors.New("no such dead letter")
	// ErrEventGone is returned if the event of a dead letter is not in the store any more.
	ErrEventGone = errors.New("the event is not in the store any more")
	// ErrCommandNotFound is returned if a projection has no command with that number, or had it more than a day ago.
	ErrCommandNotFound = errors.New("no such command")
	// ErrOutOfOrder is returned by a replay that was refused whole: the projection has handled later events of the
	// streams. The error's text names streams. Rebuild the projection, or set DeadLetterFilter.OutOfOrder.
	ErrOutOfOrder = errors.New("later events of the stream are handled")
	// ErrCommandPending is returned if a command was accepted but not carried out yet. The holder of the projection's
	// lease will carry it out.
	ErrCommandPending = errors.New("accepted, but not carried out yet")
)

// Errors about resets and operations. Operations are rebuilds, swaps and drops of versions.
var (
	// ErrOperationOpen is returned if a projection has an open operation already. The error's text describes it.
	ErrOperationOpen = errors.New("the projection has an open operation")
	// ErrOperationPending is returned if an operation was requested and has not ended yet. A node that registers the
	// projection will carry it out.
	ErrOperationPending = errors.New("requested, but not carried out yet")
	// ErrDelivers is returned by a reset of a projection whose handler delivers, unless ResetOptions.Redeliver is set.
	ErrDelivers = errors.New("the projection delivers: its events would be delivered again, which must be allowed explicitly")
	// ErrNotSettled is returned by a reset to a position above the settled mark, which the error's text names.
	ErrNotSettled = errors.New("the position is above the settled mark")
	// ErrRunning is returned by a recovery of a restored tenant if a projection of it runs. Pause the tenant first.
	ErrRunning = errors.New("the projection runs: pause the tenant first")
	// ErrOperationNotFound is returned if a projection has no open operation.
	ErrOperationNotFound = errors.New("no open operation")
	// ErrOperationCancelled is returned if an operation was cancelled. It had no effect.
	ErrOperationCancelled = errors.New("the operation was cancelled")
	// ErrNoHook is returned by an operation on a projection whose code does not have the hook that the operation runs.
	// The error's text names the field of Projection.
	ErrNoHook = errors.New("the projection has no such hook")
)

// Errors about versions of a projection.
var (
	// ErrBehind is returned by a swap if the new version is behind the earlier one and does not catch up. The error's
	// text has both positions.
	ErrBehind = errors.New("the version is behind the earlier one")
	// ErrParkedEvents is returned by a swap if events of the new version are parked, so that readers would miss them.
	// The error's text has their number.
	ErrParkedEvents = errors.New("the version has parked events, which readers would miss")
	// ErrSeveralVersions is returned by a swap if there is more than one earlier version. The versions in between must
	// be swapped or dropped first.
	ErrSeveralVersions = errors.New("there are several earlier versions")
	// ErrVersionInUse is returned by an attempt to drop a version that readers use.
	ErrVersionInUse = errors.New("the version is in use")
)
