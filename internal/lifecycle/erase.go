package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/projection"
)

// abandonTime bounds the end of an erasure that failed.
const abandonTime = 5 * time.Second

// Erase redacts events of a tenant while none of its projections runs, so that no node has them in memory afterwards.
// If it fails, the tenant is resumed.
func Erase(ctx context.Context, plane control.Plane, e *control.Erasure) error {
	if err := e.Validate(); err != nil {
		return err
	}
	err := erase(ctx, plane, e)
	if err == nil || e.ID == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	if failed := plane.AbandonErasure(ctx, e); failed != nil {
		return fmt.Errorf("%w; the tenant may stay paused: %w", err, failed)
	}
	return err
}

// erase pauses the tenant and redacts the events. If the tenant is resumed meanwhile, by another erasure or by a
// person, it begins again.
func erase(ctx context.Context, plane control.Plane, e *control.Erasure) error {
	for done := false; !done; {
		if err := plane.BeginErasure(ctx, e); err != nil {
			return err
		}
		var err error
		done, err = redact(ctx, plane, e)
		if err != nil && !errors.Is(err, projection.ErrResumed) {
			return err
		}
	}
	return nil
}

// redact redacts the events when nothing of the tenant runs any more. It reports whether all are redacted.
func redact(ctx context.Context, plane control.Plane, e *control.Erasure) (done bool, err error) {
	if err := suspended(ctx, plane, e.Tenant); err != nil {
		return false, err
	}
	return plane.EndErasure(ctx, e)
}
