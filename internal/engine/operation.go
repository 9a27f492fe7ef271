package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// OperationKind is what an operation does.
type OperationKind string

const (
	// OperationRebuild runs the projection's Reset hook and sets its checkpoints to 0.
	OperationRebuild OperationKind = "rebuild"
	// OperationSwap makes a version of a projection take the place of another one.
	OperationSwap OperationKind = "swap"
	// OperationDrop removes a version of a projection that was not swapped in.
	OperationDrop OperationKind = "drop"
)

// NeedsHook reports whether the operation fails if the projection does not have its hook.
func (k OperationKind) NeedsHook() bool { return k == OperationRebuild }

// NewOperation is an operation that a user requests. It runs code of the projection ID, so a living node that registers
// the projection carries it out.
type NewOperation struct {
	// ID is the projection, without a partition.
	ID   projection.ID
	Kind OperationKind
	// Holds are the names of the projections of the tenant that stand still meanwhile.
	Holds []string
	// Options are the options of the kind, as JSON, or empty.
	Options string
	// By is the node that carries it out while it lives. If it is empty, any node does.
	By string
}

// Encode sets Options.
func (o NewOperation) Encode(options any) (NewOperation, error) {
	text, err := json.Marshal(options)
	o.Options = string(text)
	return o, err
}

// Operation is an operation as the store has it.
type Operation struct {
	NewOperation
	Number int64
	// Epoch is raised each time a node takes the operation. A write under an older epoch is refused.
	Epoch int64
	// Node is the node that carries it out. It is empty before the first one does.
	Node string
	// RequestedAt, StartedAt and EndedAt are by the store's clock. StartedAt is when the first node took the operation.
	// StartedAt and EndedAt may be zero.
	RequestedAt, StartedAt, EndedAt time.Time
	// Age is the time since StartedAt when the operation was taken.
	Age time.Duration
	// Failure and Error say why the operation failed. While it is open, Error is why the last try failed.
	Failure OperationFailure
	Error   string
}

// Decode sets options to the options of the operation.
func (o Operation) Decode(options any) error {
	if o.Options == "" {
		return nil
	}
	return json.Unmarshal([]byte(o.Options), options)
}

func (o Operation) String() string {
	return fmt.Sprintf("operation %d (%s of %s)", o.Number, o.Kind, o.ID)
}

// Err returns why an operation that has ended failed, nil if it did not.
func (o Operation) Err() error {
	if o.Failure == "" {
		return nil
	}
	return &storedError{text: o.Error, is: operationErrors[o.Failure]}
}

// storedError is an error that another process wrote.
type storedError struct {
	text string
	is   error
}

func (e *storedError) Error() string { return e.text }

// Unwrap returns the error that callers can tell apart, if there is one.
func (e *storedError) Unwrap() error { return e.is }

// OperationFailure says in the store why an operation failed, so that every process returns the same error.
type OperationFailure string

// FailedOperation is the OperationFailure of errors without one of their own.
const FailedOperation OperationFailure = "failed"

// operationErrors are the errors of operations that callers can tell apart.
var operationErrors = map[OperationFailure]error{
	"no hook":   projection.ErrNoHook,
	"delivers":  projection.ErrDelivers,
	"cancelled": projection.ErrOperationCancelled,
	"archived":  tenancy.ErrArchived,
	"dropping":  tenancy.ErrDropping,
	"copying":   tenancy.ErrCopying,
	"unknown":   projection.ErrUnknownProjection,
	"retired":   projection.ErrRetired,
	"paused":    projection.ErrPaused,
	"behind":    projection.ErrBehind,
	"parked":    projection.ErrParkedEvents,
	"several":   projection.ErrSeveralVersions,
	"in use":    projection.ErrVersionInUse,
	"stopped":   projection.ErrFailed,
}

// FailureOf returns how an error of an operation is stored.
func FailureOf(err error) OperationFailure {
	for failure, sentinel := range operationErrors {
		if errors.Is(err, sentinel) {
			return failure
		}
	}
	return FailedOperation
}

// OperationCode is what a node needs of the projection's code to carry out an operation.
type OperationCode struct {
	// Hook runs within Timeout. Without Hook.Run it is skipped.
	Hook    handler.Hook
	Timeout time.Duration
	// Types selects the events of the projection, none for all.
	Types []string
}

// ErrNotStill is returned by RunOperation if a projection of the operation is not held or has an owner.
var ErrNotStill = errors.New("projections of the operation are still running")

// OperationOpen returns projection.ErrOperationOpen with a description of the open operation.
func OperationOpen(open Operation) error {
	return fmt.Errorf("%w: operation %d (%s), requested at %s", projection.ErrOperationOpen, open.Number, open.Kind,
		open.RequestedAt.UTC().Format(time.RFC3339))
}

// SwapOptions are the options of an operation of the kind OperationSwap.
type SwapOptions struct {
	// CatchUp limits how long the swap waits for the version: from when the first node takes the operation, before it
	// holds the earlier version, and again while it holds that.
	CatchUp time.Duration
	// AllowParked lets the version take its place although events of it are parked.
	AllowParked bool
}

// IsOver reports whether an operation has ended or was taken over, if it is now as in the argument.
func (o Operation) IsOver(now Operation) bool { return now.Epoch != o.Epoch || !now.EndedAt.IsZero() }

// RebuildOptions are the options of OperationRebuild.
type RebuildOptions struct {
	// Redeliver is that of Reset.
	Redeliver bool
}

// Reset is a request to set all checkpoints of a projection.
type Reset struct {
	ID       projection.ID
	Position int64
	// Incarnation is that in which Position was settled, 0 if it needs none.
	Incarnation Incarnation
	// Redeliver allows to reset a projection that delivers.
	Redeliver bool
}

// ResetResult is what a reset of a projection changed.
type ResetResult struct {
	// Lowest and Highest are the bounds of the checkpoints of the partitions before, and Position is their checkpoint
	// now.
	Lowest, Highest, Position int64
	// Head is the highest visible position of the tenant if the reset goes back in any partition, else 0.
	Head int64
	// Resolved counts the dead letters that were resolved.
	Resolved int64
	// Epoch is the epoch of all partitions now. Those of earlier leases are below it.
	Epoch int64
}

// EndsOperation returns err as a fault that ends an operation, nil for nil.
func EndsOperation(err error) error {
	if err == nil {
		return nil
	}
	return &faults.Fault{Class: faults.Handler, Err: err}
}

// UnknownOperation returns the error of an operation whose kind this version of the library does not know.
func UnknownOperation(o Operation) error {
	return EndsOperation(fmt.Errorf("this version of the library does not know operations of the kind %q", o.Kind))
}
