package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/queued"
)

// Queue takes the statements of a handler that only writes: see Queued. It is the type of pgstore.Queue, which
// documents its methods. So one function may serve both stores.
type Queue = queued.Queue

// Queued makes a Handler of a function that only writes, and reads nothing from the database, for all events of a
// batch, in global order. The function queues its statements, and has no transaction. While it runs, others may write
// to the file. Everything else is as for Batch.
//
// Arguments are those of database/sql. A json.RawMessage, a map, a struct, and a slice of other elements than bytes are
// passed as JSON.
//
// Queue.At ties a statement to its event. If it fails, the event is tried alone at once. Queue.Expect makes a statement
// fail if it changes another number of rows. Within the function, methods of the store that write return
// projection.ErrWithinTx, and those that read return projection.ErrQueuedRead.
func Queued(f func(ctx context.Context, q Queue, events []event.Envelope) error) Handler {
	return Handler{handler.HandleQueue(queues, f)}
}

// QueuedEach is Queued for one event. The statements belong to the event.
func QueuedEach(f func(ctx context.Context, q Queue, e event.Envelope) error) Handler {
	return Handler{handler.HandleQueueEach(queues, f)}
}

// OnQueued is QueuedEach for the events of type T.EventType, with their bodies decoded. The options are those of On.
func OnQueued[T event.Typed](f func(ctx context.Context, q Queue, e event.Of[T]) error,
	options ...event.DecodeOption) Handler {
	return Handler{handler.HandleQueueType(queues, f, options...)}
}

// OnQueuedBatch is OnQueued for all events of a batch.
func OnQueuedBatch[T event.Typed](f func(ctx context.Context, q Queue, events []event.Of[T]) error,
	options ...event.DecodeOption) Handler {
	return Handler{handler.HandleQueueTypeBatch(queues, f, options...)}
}

var queues = handler.Queues[*sql.Tx]{
	New:   func() Queue { return queued.New(func(string) error { return nil }, encodeValue) },
	Send:  sendInTx,
	Class: returnedClass,
}

// encodeValue returns an argument as a value of the driver.
func encodeValue(arg any) (encoded any, size int, err error) {
	switch own := arg.(type) {
	case sql.NamedArg:
		own.Value, size, err = encodeValue(own.Value)
		return own, size, err
	case json.RawMessage: // the driver would pass bytes, which SQLite takes for its binary JSON
		if own != nil {
			return string(own), len(own), nil
		}
	}
	value, err := driver.DefaultParameterConverter.ConvertValue(arg)
	if _, own := arg.(driver.Valuer); err != nil && !own && marshals(reflect.TypeOf(arg)) {
		var raw []byte
		raw, err = json.Marshal(arg)
		value = string(raw)
	}
	if err != nil {
		return nil, 0, err
	}
	switch v := value.(type) {
	case []byte:
		return slices.Clone(v), len(v), nil
	case string:
		return v, len(v), nil
	}
	return value, 8, nil
}

// marshals reports whether a value of the type is passed as JSON.
func marshals(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Map || t.Kind() == reflect.Struct || t.Kind() == reflect.Slice
}

// sendInTx executes statements in a transaction.
func sendInTx(ctx context.Context, tx *sql.Tx, statements []queued.Statement) error {
	for i, s := range statements {
		if err := executeQueued(ctx, tx, s); err != nil {
			return fmt.Errorf("statement %d of %d: %w", i+1, len(statements), err)
		}
	}
	return nil
}

func executeQueued(ctx context.Context, tx *sql.Tx, s queued.Statement) error {
	result, err := tx.ExecContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return s.Named(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	return s.Changed(rows)
}
