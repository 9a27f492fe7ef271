// Package storecopy copies an event store from a file (package sqlitestore) to PostgreSQL (package pgstore). It is a package
// of its own, because it links the drivers of both stores.
//
// The copy has the events with their positions, versions and times, idempotency keys with their ages, tenants with
// their states, and projections with their delivery tokens, partitions, checkpoints, desired states, failures, dead
// letters, parked streams and commands. Read models are tables of the program: Options.ReadModels can copy them, or
// Options.Projections can request that they are rebuilt.
package storecopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

var (
	// ErrOtherTarget is returned if the copy of the file began with another target. Continue it there, or call Reopen.
	ErrOtherTarget = transfer.ErrOtherTarget
	// ErrOtherSource is returned if a tenant of the target is being copied from another file.
	ErrOtherSource = transfer.ErrOtherSource
	// ErrNotEmpty is returned if a tenant of the target has events or projections.
	ErrNotEmpty = transfer.ErrNotEmpty
	// ErrOpened is returned by Cancel if tenants of the target were opened.
	ErrOpened = errors.New("the copy has opened tenants")
)

// ReadModel says whether a projection keeps its read model.
type ReadModel int

const (
	// Keep means that the projection continues at its checkpoint. Options.ReadModels must copy the read model, unless
	// it is not in the file or there is none, as for deliveries.
	Keep ReadModel = iota + 1
	// Rebuild means that the projection begins at the first event, with an empty read model. Its dead letters, parked
	// streams, commands and failures are not kept. It keeps its token, partitions and desired state.
	Rebuild
)

// Options configure Run.
type Options struct {
	// Projections has Keep or Rebuild for the name of each projection in the file. Run refuses to begin if a projection
	// is missing. Required, unless the file has no projections.
	Projections map[string]ReadModel
	// ReadModels copies the read models of one tenant. tx is a transaction of the target with the search path of the
	// tenant's handlers. It commits together with the opening of the tenant, so each tenant's read models are copied once.
	// Meanwhile no projection runs in either store. A file has one set of tables for all tenants. Default: no read model is
	// copied.
	ReadModels pgstore.TenantStep
	// Progress is called after each page of rows and each step. It must not block for long. Default: not called.
	Progress func(Progress)
}

// Phase is a part of a copy.
type Phase string

// The phases of a copy, in their order.
const (
	// Copying copies rows.
	Copying Phase = "copying"
	// Verifying reads all rows again, from both stores, and compares them.
	Verifying Phase = "verifying"
	// Opening copies read models and opens tenants.
	Opening Phase = "opening"
)

// Progress says how far a copy is.
type Progress struct {
	Phase  Phase
	Tenant string
	// Table is empty while a tenant is created or opened.
	Table string
	// Rows is the number of rows of the table in this phase so far, including those of earlier calls.
	Rows int64
}

// Report says what was copied, as read from the file after the copy.
type Report struct{ Tenants []TenantReport }

// TenantReport is the report about one tenant. Head is the last position that was given to an event.
type TenantReport struct {
	Tenant string
	Head   int64
	Tables []TableReport
}

// TableReport is the report about one kind of rows. Checksum is over their values and their order.
type TableReport struct {
	Table    string
	Rows     int64
	Checksum string
}

// DifferenceError is returned if the stores differ in a row.
type DifferenceError struct {
	Tenant, Table string
	// Key is the row's key.
	Key string
	// Difference says how the row differs.
	Difference string
}

// Error names the row.
func (e *DifferenceError) Error() string {
	return fmt.Sprintf("tenant %q: the stores differ in %s at %s: %s", e.Tenant, e.Table, e.Key, e.Difference)
}

// Run copies all tenants of a file to PostgreSQL, compares all rows, and then opens the tenants there. Both stores must
// be migrated. The target may have other tenants. Tenants of the same names must have neither events nor projections.
// Tenants that do not exist are created, with the steps of the target's TenantSetup. DefaultTenant is left out if it
// never had an event in the file.
//
// Run takes the file's owner lock. While a runtime has it, Run returns an error that names the process, and changes
// nothing. It returns projection.ErrOperationOpen while a rebuild, a swap or a drop of a version is open, and changes nothing. Otherwise it closes the file: from then on, all writes to the store's tables fail with sqlitestore.ErrMoved,
// in all processes. Reads still work. The file stays closed after the copy, so that a program that still uses it cannot
// append to it. Until all rows are compared, appends to the tenants in PostgreSQL fail with
// projection.ErrTenantCopying, and no projection of them runs there.
//
// After an error, a cancellation or the end of the process, call Run again with the same stores. It continues where the
// last call ended, and returns a report even if the copy is already complete. Cancel ends a copy that is not complete.
// If rows differ, the error is a *DifferenceError.
//
// Run needs the role that owns the schemas of the target.
func Run(ctx context.Context, from *sqlitestore.Store, to *pgstore.Store, opts Options) (Report, error) {
	if err := opts.validate(); err != nil {
		return Report{}, fmt.Errorf("copy a store: %w", err)
	}
	target := to.CopyTarget(opts.ReadModels, opts.named(Rebuild))
	report, err := run(ctx, from.CopySource(), target, opts)
	if err != nil {
		return Report{}, fmt.Errorf("copy a store: %w", err)
	}
	return report, nil
}

// Verify compares all rows of the file with those in PostgreSQL, as Run does. It is meaningful until the tenants are
// opened: projections and appends then change the rows. It returns an error if no copy to this target has begun.
func Verify(ctx context.Context, from *sqlitestore.Store, to *pgstore.Store) (Report, error) {
	report, err := verifyBegun(ctx, from.CopySource(), to.CopyTarget(nil, nil))
	if err != nil {
		return Report{}, fmt.Errorf("verify a copy: %w", err)
	}
	return report, nil
}

// Cancel ends a copy that has opened no tenant yet: it removes from PostgreSQL what was copied, and opens the file. The
// tenants in PostgreSQL stay, and are empty and active. Cancel returns ErrOpened if a tenant was opened there: it may have
// new events. After an error or the end of the process, call Cancel again, or Run to continue the copy.
func Cancel(ctx context.Context, from *sqlitestore.Store, to *pgstore.Store) error {
	if err := cancel(ctx, from.CopySource(), to.CopyTarget(nil, nil)); err != nil {
		return fmt.Errorf("cancel the copy of a store: %w", err)
	}
	return nil
}

// Reopen opens a file that Run has closed. It does not change the target. Tenants of an incomplete copy stay closed
// there. Events that were appended there after a complete copy are not in the file. So both stores may give the same
// positions to different events. Use Cancel unless the target is lost or no longer used.
func Reopen(ctx context.Context, from *sqlitestore.Store) error {
	source := from.CopySource()
	if err := locked(ctx, source, func() error { return source.Open(ctx) }); err != nil {
		return fmt.Errorf("reopen a store: %w", err)
	}
	return nil
}

func (o Options) validate() error {
	for name, model := range o.Projections {
		if model != Keep && model != Rebuild {
			return fmt.Errorf("Options.Projections[%q] must be Keep or Rebuild: %d", name, model)
		}
	}
	return nil
}

// named returns the sorted names of the projections with this ReadModel.
func (o Options) named(model ReadModel) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(o.Projections)) {
		if o.Projections[name] == model {
			names = append(names, name)
		}
	}
	return names
}

func (o Options) progress(p Progress) {
	if o.Progress != nil {
		o.Progress(p)
	}
}

// newID returns the id of a new copy.
func newID() string { return uuid.NewString() }

// missing returns an error if Options.Projections lacks projections of the file.
func (o Options) missing(ctx context.Context, source transfer.Source, tenants []transfer.Tenant) error {
	lacking := make(map[string]bool)
	for _, t := range tenants {
		err := pages(ctx, source, transfer.Projections, t.Name, transfer.Projections.After(), func(rows []transfer.Row) error {
			for _, row := range rows {
				name, _ := row[1].(string)
				if _, ok := o.Projections[name]; !ok {
					lacking[name] = true
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("Options.Projections lacks projections of the file: %s", strings.Join(slices.Sorted(maps.Keys(lacking)), ", "))
	}
	return nil
}
