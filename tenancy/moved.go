package tenancy

import (
	"fmt"
	"time"
)

// MovedError is the error of a call on a tenant that admin.MoveTenant has committed to another store, or may have. It
// wraps ErrMoved.
type MovedError struct {
	// Target is the name of the other store, as admin.AbandonMove takes it.
	Target string
	// BeganAt is when the move began.
	BeganAt time.Time
	// MovedAt is when the tenant had moved. It is zero if that is not known: the process of the move, or its
	// connection, was lost. Then a repeat of the move to the same store decides it.
	MovedAt time.Time
}

func (e *MovedError) Error() string {
	if !e.MovedAt.IsZero() {
		return fmt.Sprintf("%v: it has moved at %s to %s", ErrMoved, e.MovedAt.Format(time.RFC3339), e.Target)
	}
	return fmt.Sprintf("%v: a move that began at %s has not ended, to %s", ErrMoved, e.BeganAt.Format(time.RFC3339),
		e.Target)
}

// Unwrap returns ErrMoved.
func (e *MovedError) Unwrap() error { return ErrMoved }
