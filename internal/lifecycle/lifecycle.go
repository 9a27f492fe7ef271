// Package lifecycle archives, drops and moves tenants, and erases events. It has the steps that all stores share.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Stopped waits until free reports that the paused projections no longer run. It keeps waiting during an outage of the
// database.
func Stopped(ctx context.Context, plane control.Plane, free func() (bool, error)) error {
	return backoff.Poll(ctx, 2*time.Millisecond, 100*time.Millisecond, func() (bool, error) {
		free, err := free()
		switch {
		case err == nil:
			return free, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case plane.Classify(err).Passes():
			return false, nil
		}
		return false, err
	})
}

// Archive archives a tenant as decide does, and waits until nothing of it runs.
func Archive(ctx context.Context, db store.Control, name string, decide store.Decision) error {
	if err := db.DecideState(ctx, name, decide); err != nil {
		return fmt.Errorf("archive tenant %q: %w", name, err)
	}
	if err := suspended(ctx, control.On(db), name); err != nil {
		return fmt.Errorf("archive tenant %q: %w", name, err)
	}
	return nil
}

// Drop drops a tenant. begin commits that the tenant is being dropped, and returns the tenant's row, 0 if it did not
// find the tenant. When nothing of the tenant runs any more, end removes it, unless another tenant has its name by
// then.
func Drop(ctx context.Context, plane control.Plane, name, confirm string, begin func() (row int32, err error),
	end func(row int32) error) error {
	switch {
	case confirm != name:
		return fmt.Errorf("drop tenant %q: the name was confirmed as %q", name, confirm)
	case name == projection.DefaultTenant:
		return fmt.Errorf("drop tenant %q: the default tenant cannot be dropped, only archived", name)
	}
	row, err := drop(ctx, plane, name, begin, end)
	if row != 0 && (errors.Is(err, tenancy.ErrUnknown) || errors.Is(err, projection.ErrResumed)) {
		return nil // another call ended the drop meanwhile
	}
	if err != nil {
		return fmt.Errorf("drop tenant %q: %w", name, err)
	}
	return nil
}

func drop(ctx context.Context, plane control.Plane, name string, begin func() (row int32, err error),
	end func(row int32) error) (row int32, err error) {
	row, err = begin()
	if err != nil {
		return row, err
	}
	if err := suspended(ctx, plane, name); err != nil {
		return row, err
	}
	return row, end(row)
}

// suspended waits until all leases of a suspended tenant are free.
func suspended(ctx context.Context, plane control.Plane, name string) error {
	err := Stopped(ctx, plane, func() (bool, error) { return plane.SuspensionEnded(ctx, name) })
	if err != nil && !errors.Is(err, projection.ErrResumed) && !errors.Is(err, tenancy.ErrUnknown) {
		return fmt.Errorf("wait until nothing of it runs: %w", err)
	}
	return err
}
