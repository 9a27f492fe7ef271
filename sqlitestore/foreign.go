package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// ErrForeignObject is returned if the store's tables have triggers of another program, indexes that are unique, partial
// or of an expression, or foreign keys to other columns than the id of an event. Such an object runs within the
// statements of the store: it can refuse or swallow the events of others. The error names the objects. Temporary
// objects with the names of the store's tables are refused as well.
var ErrForeignObject = errors.New("the store's tables have objects of another program")

// checkObjects returns ErrForeignObject if the file has foreign objects. It looks for them only if the schema has
// changed since checkCommitted found none.
func (w *writer) checkObjects(ctx context.Context, q querier) (version int64, err error) {
	version, err = number(ctx, q, "schema_version")
	if err == nil && version != w.checkedSchema.Load() {
		err = foreignObjects(ctx, q, "foreign_objects")
	}
	return version, err
}

// checkCommitted is checkObjects for a transaction that has just begun.
func (w *writer) checkCommitted(ctx context.Context, tx *sql.Tx) error {
	version, err := w.checkObjects(ctx, tx)
	if err != nil {
		return err
	}
	w.checkedSchema.Store(version)
	return nil
}

// foreignObjects returns ErrForeignObject if a statement returns objects.
func foreignObjects(ctx context.Context, q querier, statement string) error {
	var kind, name, table string
	var found []string
	err := each(ctx, q, statement, nil, []any{&kind, &name, &table}, func() error {
		found = append(found, fmt.Sprintf("%s %s on %s", kind, excerpt.Quoted(name), table))
		return nil
	})
	if err != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", ErrForeignObject, strings.Join(found, ", "))
}

// checkLeft returns an error if the function that had the transaction left something that changes what the store's
// statements do: foreign objects, or query_only. ctx is that of takeBack.
func (t *transaction) checkLeft(ctx context.Context) error {
	err := t.findLeft(ctx)
	if errors.Is(err, sql.ErrTxDone) {
		err = fmt.Errorf("the transaction was ended: %w", ErrTxControl)
	}
	return err
}

func (t *transaction) findLeft(ctx context.Context) error {
	if t.loan.defined {
		if _, err := t.writer.checkObjects(ctx, t.Tx); err != nil {
			return err
		}
	}
	if !t.loan.looked {
		return nil
	}
	if err := foreignObjects(ctx, t.Tx, "temporary_objects"); err != nil {
		return err
	}
	only, err := number(ctx, t.Tx, "query_only")
	if err == nil && only != 0 {
		err = fmt.Errorf("query_only was left on, so the store cannot write: %w", ErrTxControl)
	}
	return err
}
