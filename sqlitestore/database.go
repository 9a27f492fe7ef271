package sqlitestore

import (
	"context"
	"database/sql"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/within"
)

// database is what the parts of a store share: the file, with its writer and readers.
type database struct {
	path    string
	opts    Options
	log     *zap.Logger
	writer  *writer
	readers *sql.DB
	// sessions are the sessions of the runtimes in this process.
	sessions sessions
	// migrated reports that the schema was found to be acceptable.
	migrated atomic.Bool
}

// notWithin returns ErrWithinTx if ctx is the context of a transaction of the store.
func (db *database) notWithin(ctx context.Context) error { return within.RefuseOpen(ctx, db) }

// mark marks a context as that of a transaction of the store. The key of marks is the database.
func (db *database) mark(ctx context.Context) (_ context.Context, end func()) {
	return within.Mark(ctx, db)
}

// refuseRead returns an error if ctx is that of a function that queues statements of a batch.
func (db *database) refuseRead(ctx context.Context) error { return within.RefuseRead(ctx, db) }

// transact runs fn in a transaction of the store.
func (db *database) transact(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if err := db.notWithin(ctx); err != nil {
		return err
	}
	announced := false
	err := db.writer.transact(ctx, func(tx *sql.Tx) error {
		db.sessions.announced = false
		err := fn(tx)
		announced = db.sessions.announced
		return err
	})
	if err == nil && announced {
		db.sessions.wake()
	}
	return db.damaged(err)
}
