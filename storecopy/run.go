package storecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/projection"
)

// run begins or continues a copy.
func run(ctx context.Context, source transfer.Source, target transfer.Target, opts Options) (report Report, err error) {
	err = locked(ctx, source, func() error {
		report, err = runLocked(ctx, source, target, opts)
		return err
	})
	return report, err
}

// locked runs fn under the source's lock.
func locked(ctx context.Context, source transfer.Source, fn func() error) (err error) {
	release, err := source.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	return fn()
}

func runLocked(ctx context.Context, source transfer.Source, target transfer.Target, opts Options) (Report, error) {
	tenants, err := tenantsOf(ctx, source)
	if err != nil {
		return Report{}, err
	}
	if err := opts.missing(ctx, source, tenants); err != nil {
		return Report{}, err
	}
	c, state, err := begin(ctx, source, target, tenants)
	if err != nil {
		return Report{}, err
	}
	// Nothing changes in the source from now on.
	if tenants, err = tenantsOf(ctx, source); err != nil {
		return Report{}, err
	}
	switch state {
	case transfer.Copying:
		return copyAll(ctx, source, target, c, tenants, opts)
	case transfer.Verified, transfer.Opening:
		if err := openAll(ctx, target, c, tenants, opts); err != nil {
			return Report{}, err
		}
	}
	return compare(ctx, source, nil, tenants, opts)
}

// tenantsOf returns the tenants that are copied. Each store has a DefaultTenant, even if the program does not use it. A
// DefaultTenant without events is left out, so the target may use its own.
func tenantsOf(ctx context.Context, source transfer.Source) ([]transfer.Tenant, error) {
	tenants, err := source.Tenants(ctx)
	return slices.DeleteFunc(tenants, func(t transfer.Tenant) bool { return t.Name == projection.DefaultTenant && t.Head == 0 }), err
}

// begin returns the copy of the source, and its state. If no copy has begun, begin begins one and closes the source.
func begin(ctx context.Context, source transfer.Source, target transfer.Target, tenants []transfer.Tenant) (transfer.Copy, transfer.State, error) {
	c, err := source.Copy(ctx)
	if err != nil {
		return c, transfer.Unknown, err
	}
	if c.ID != "" {
		return begun(ctx, target, c)
	}
	if err := source.Closable(ctx); err != nil {
		return c, transfer.Unknown, err
	}
	c = transfer.Copy{ID: newID(), From: source.Name(), To: target.Name()}
	// The target records the copy first, so that the target of a closed source always knows the copy.
	if err := target.Begin(ctx, c, tenants); err != nil {
		return c, transfer.Unknown, err
	}
	if err := source.Close(ctx, c); err != nil {
		return c, transfer.Unknown, fmt.Errorf("close the source: %w", err)
	}
	return c, transfer.Copying, nil
}

// begun returns the state of a copy that began earlier.
func begun(ctx context.Context, target transfer.Target, c transfer.Copy) (transfer.Copy, transfer.State, error) {
	state, err := target.State(ctx, c)
	if err == nil && state == transfer.Unknown {
		err = fmt.Errorf("%w: its copy to %s has begun, and %s does not have that copy", transfer.ErrOtherTarget, c.To, target.Name())
	}
	return c, state, err
}

// copyAll copies, compares and opens all tenants. It returns what the source has.
func copyAll(ctx context.Context, source transfer.Source, target transfer.Target, c transfer.Copy, tenants []transfer.Tenant, opts Options) (Report, error) {
	last, err := source.IDs(ctx)
	if err == nil {
		err = target.Reserve(ctx, c, last)
	}
	if err != nil {
		return Report{}, err
	}
	for _, tenant := range tenants {
		if err := target.Take(ctx, c, tenant.Name); err != nil {
			return Report{}, fmt.Errorf("tenant %q: %w", tenant.Name, err)
		}
		opts.progress(Progress{Phase: Copying, Tenant: tenant.Name})
	}
	for _, tenant := range tenants {
		if err := copyTenant(ctx, source, target, c, tenant.Name, opts); err != nil {
			return Report{}, fmt.Errorf("tenant %q: %w", tenant.Name, err)
		}
	}
	reader, err := target.Reader(ctx, c)
	if err != nil {
		return Report{}, err
	}
	report, err := compare(ctx, source, reader, tenants, opts)
	if err != nil {
		return Report{}, err
	}
	if err := target.Verify(ctx, c); err != nil {
		return Report{}, err
	}
	return report, openAll(ctx, target, c, tenants, opts)
}

// copyTenant copies the rows of a tenant that were not copied yet.
func copyTenant(ctx context.Context, source transfer.Source, target transfer.Target, c transfer.Copy, tenant string, opts Options) error {
	for _, table := range transfer.Tables {
		after, done, err := target.After(ctx, table, tenant)
		if err != nil {
			return err
		}
		err = pages(ctx, source, table, tenant, after, func(rows []transfer.Row) error {
			if err := target.Write(ctx, c, table, tenant, rows); err != nil {
				return err
			}
			done += int64(len(rows))
			opts.progress(Progress{Phase: Copying, Tenant: tenant, Table: table.Name, Rows: done})
			return nil
		})
		if err != nil {
			return fmt.Errorf("copy %s: %w", table.Name, err)
		}
	}
	return nil
}

// pages calls fn with each page of rows after a key.
func pages(ctx context.Context, reader transfer.Reader, table transfer.Table, tenant string, after transfer.Row, fn func([]transfer.Row) error) error {
	for {
		rows, err := reader.Page(ctx, table, tenant, after)
		if err != nil {
			return fmt.Errorf("after %s: %w", keyOf(table, after), err)
		}
		if len(rows) == 0 {
			return nil
		}
		if err := fn(rows); err != nil {
			return err
		}
		after = table.Key(rows[len(rows)-1])
	}
}

// openAll opens the tenants in the target.
func openAll(ctx context.Context, target transfer.Target, c transfer.Copy, tenants []transfer.Tenant, opts Options) error {
	for _, tenant := range tenants {
		if err := target.Open(ctx, c, tenant); err != nil {
			return fmt.Errorf("open tenant %q: %w", tenant.Name, err)
		}
		opts.progress(Progress{Phase: Opening, Tenant: tenant.Name})
	}
	return target.End(ctx, c)
}

// cancel removes what was copied, and opens the source.
func cancel(ctx context.Context, source transfer.Source, target transfer.Target) error {
	return locked(ctx, source, func() error {
		c, err := source.Copy(ctx)
		if err != nil || c.ID == "" {
			return err
		}
		_, state, err := begun(ctx, target, c)
		if err != nil {
			return err
		}
		if state == transfer.Opening || state == transfer.Ended {
			return ErrOpened
		}
		if err := target.Cancel(ctx, c); err != nil {
			return err
		}
		// The target knows the copy until the source is open, so that an interrupted cancellation can be repeated.
		if err := source.Open(ctx); err != nil {
			return err
		}
		return target.Forget(ctx, c)
	})
}
