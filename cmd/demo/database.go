package main

import (
	"context"
	"encoding/json"
	"errors"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// errNotThere is returned by place.open.
var errNotThere = errors.New("there are no tables of the demo: start a node or a load first")

// place is where the demo has its tables, or will have them. Only its methods and those of database depend on the kind
// of store.
type place interface {
	// create creates the tables. It fails if they exist.
	create(ctx context.Context, writers int, log *zap.Logger) (database, error)
	// share opens tables that several processes use, and creates them if they are missing.
	share(ctx context.Context, writers int, log *zap.Logger) (database, error)
	// open opens existing tables.
	open(ctx context.Context) (database, error)
	// clean removes what the demo created. It returns what it removed; empty if there was nothing.
	clean(ctx context.Context) (removed string, err error)
	// other says how to run the demo on the other kind of store.
	other() string
}

// database is an open store with the demo's tables.
type database interface {
	millrace.Store
	Close()
	event.Appender
	DeadLetters(id millrace.ProjectionID) projection.DeadLetters
	// batch makes a handler in a transaction of the store.
	batch(handle batchHandler) millrace.Handler
	dialect() *dialect
	// query scans each row of a result, and then calls fn.
	query(ctx context.Context, sql string, args, scan []any, fn func()) error
	// describe returns the kind, version and address of the store, for people.
	describe(ctx context.Context) (string, error)
	// kind is the kind of store, for programs.
	kind() string
	// removal says how to remove the tables.
	removal() string
	// drop removes the tables, if this database has created them.
	drop(ctx context.Context) error
}

// transaction is the transaction of a handler.
type transaction struct {
	dialect *dialect
	run     func(ctx context.Context, sql string, args ...any) error
}

type batchHandler func(ctx context.Context, tx transaction, events []event.Envelope) error

// exec runs a statement of the demo.
func (tx transaction) exec(ctx context.Context, statement string, args ...any) error {
	return tx.run(ctx, tx.dialect.sql(statement), args...)
}

// query runs a query of the demo. It scans each row, and then calls fn.
func query(ctx context.Context, d database, statement string, args, scan []any, fn func()) error {
	return d.query(ctx, d.dialect().sql(statement), args, scan, fn)
}

// asJSON encodes rows for {elements $1}.
func asJSON(rows any) string {
	text, err := json.Marshal(rows)
	if err != nil {
		panic(err) // texts and integers are always encoded
	}
	return string(text)
}
