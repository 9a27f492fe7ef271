package engine

import (
	"fmt"
	"strings"

	"github.com/millrace-go/millrace/tenancy"
)

const endedAt = "the last event is at "

// Restored returns tenancy.ErrRestored for a tenant whose events end at a position below a checkpoint.
func Restored(end, checkpoint int64) error {
	return fmt.Errorf("%s%d, a checkpoint at %d: %w", endedAt, end, checkpoint, tenancy.ErrRestored)
}

// RestoredEnd returns where the events of a tenant ended when a projection stopped, if its reason is that of Restored.
func RestoredEnd(reason string) (end int64, restored bool) {
	_, at, _ := strings.Cut(reason, endedAt)
	n, _ := fmt.Sscanf(at, "%d,", &end)
	return end, n == 1 && IsRestored(reason)
}

// IsRestored reports whether the reason of a stopped projection, which rows hold as text, is tenancy.ErrRestored.
func IsRestored(reason string) bool { return strings.HasSuffix(reason, tenancy.ErrRestored.Error()) }

// RecoverKind is how a projection continues after a restore of its tenant.
type RecoverKind string

const (
	// RecoverContinue lowers the checkpoints to the end of the restored events.
	RecoverContinue RecoverKind = "continue"
	// RecoverReset sets the checkpoints to a position.
	RecoverReset RecoverKind = "reset"
	// RecoverRebuild is RecoverContinue, and requests a rebuild. Until that has happened the projection stays stopped.
	RecoverRebuild RecoverKind = "rebuild"
)

// RecoverAction is what is done with a projection of a restored tenant.
type RecoverAction struct {
	Kind RecoverKind
	// Position is that of RecoverReset.
	Position int64
	// By is NewOperation.By of RecoverRebuild.
	By string
}

// Recover is a request to let the projections of a restored tenant continue.
type Recover struct {
	Tenant string
	// End is the position of the last restored event, and Incarnation that in which it was settled, 0 if it needs none.
	End         int64
	Incarnation Incarnation
	// Actions are by the names of projections. Without an action, a projection that delivers continues, and others are
	// refused.
	Actions map[string]RecoverAction
	// Redeliver allows to reset and rebuild projections that deliver.
	Redeliver bool
}

// Recovered is what was done with a projection of a restored tenant.
type Recovered struct {
	Name   string
	Action RecoverAction
	// From is the lowest checkpoint before, and Position the one now.
	From, Position int64
	// Removed counts the parked events that are gone.
	Removed int64
	// Reset is the result of RecoverReset.
	Reset ResetResult
	// Epoch is ResetResult.Epoch, 0 if nothing was changed. Operation is the number of the requested rebuild, 0 for
	// none.
	Epoch, Operation int64
}

// RestoredPartition is a partition of a projection as a recovery finds it.
type RestoredPartition struct {
	Row      int32
	Name     string
	Delivers bool
	// Paused means that the projection or its tenant is paused, Owned that a living node holds the lease, and Halted
	// that it has stopped because of Reason.
	Paused, Owned, Halted bool
	Reason                string
	// Highest is the highest position that the partition has handled, which may be above its checkpoint.
	Checkpoint, Highest int64
}
