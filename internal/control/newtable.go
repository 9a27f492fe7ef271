package control

import (
	"context"

	"github.com/millrace-go/millrace/internal/store"
)

// newTable is a table that is created when it is needed for the first time. It is no migration, so older programs run
// beside it.
type newTable struct {
	name string
	// create makes the table. owned takes the right to write it from all roles but the owner. It is empty if every role
	// may write.
	create, owned string
}

var (
	erasuresTable = newTable{"erasures", "create_erasures", "complete_erasures"}
	movesTable    = newTable{"moves", "create_moves", "complete_moves"}
)

// makeTable creates a table unless it exists.
func (p base) makeTable(ctx context.Context, t newTable) error {
	var made bool
	err := p.db.View(ctx, func(v store.View) (err error) {
		made, err = t.wasMade(v)
		return err
	})
	if err == nil && !made {
		err = p.db.Tx(ctx, func(tx store.Tx) error {
			tx.Exec("lock_new_table")
			if _, err := tx.One(t.create, nil); err != nil { // it is there before the next statement is prepared
				return err
			}
			if t.owned != "" {
				tx.Exec(t.owned)
			}
			return nil
		})
	}
	return p.wrap(p.db.Lacking(ctx, err), "create the table of %s", t.name)
}

// wasMade reports whether the table exists.
func (t newTable) wasMade(v store.View) (made bool, err error) {
	_, err = v.One("table_was_made", []any{t.name}, &made)
	return made, err
}
