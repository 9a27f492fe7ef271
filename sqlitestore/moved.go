package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrMoved is returned by all calls that write, and by Migrate, if an earlier version of this library has copied the
// whole file to PostgreSQL. That version has closed the file by triggers, and storecopy.Reopen of that version opens it
// again. Nothing was written.
var ErrMoved = errors.New("the store was moved")

// closedPrefix begins the message of those triggers. The name of the other store follows.
const closedPrefix = "millrace: the store was moved to "

// notMoved returns ErrMoved if the file was moved.
func (db *database) notMoved(ctx context.Context) error {
	if err := db.ready(ctx); err != nil {
		return err
	}
	return damaged(movedTo(ctx, db.readers))
}

func movedTo(ctx context.Context, q querier) error {
	var to string
	moved, err := runOne(ctx, q, "copy_begun", nil, &to)
	if err == nil && moved {
		err = fmt.Errorf("%w to %s", ErrMoved, to)
	}
	return err
}

// moved adds ErrMoved to an error by which a trigger of the earlier version reports a write. Other errors are returned
// unchanged.
func moved(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) && failed.Code() == sqlite3.SQLITE_CONSTRAINT_TRIGGER {
		if _, to, ok := strings.Cut(failed.Error(), closedPrefix); ok && !errors.Is(err, ErrMoved) {
			return fmt.Errorf("%w to %s", ErrMoved, strings.TrimSuffix(to, fmt.Sprintf(" (%d)", failed.Code())))
		}
	}
	return err
}
