package pgstore

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/pgstore/internal/guard"
)

// Queue takes the statements of a handler that only writes: see Queued. Its methods:
//
//	Exec(sql string, args ...any)   queues a statement. Its arguments may be changed afterwards.
//	At(e event.Envelope) Queue      ties statements to their event. If one fails, the event is tried alone at once.
//	Expect(rows int64) Queue        makes statements fail if they change another number of rows.
//
// It must not be used after the function has returned: what is queued later is lost.
type Queue = queued.Queue

// Queued makes a Handler of a function that only writes, and reads nothing from the database, for all events of a
// batch, in global order. The function queues its statements, and has no transaction. Then they are sent with the
// begin, the fence, the checkpoint and the commit in one message, while handlers of Batch need three. Everything else
// is as for Batch.
//
// Arguments are sent as texts, by their Go types, as with pgx.QueryExecModeExec: a cast such as $1::bigint is needed
// only where the server cannot tell the type. But a time.Time is sent in its zone, a []byte as bytea. A json.RawMessage
// is JSON, and so are maps, structs and slices of them whose type the driver does not know.
//
// Within the function, methods of the store that write return projection.ErrWithinTx, and those that read return
// projection.ErrQueuedRead. Middleware is called around the function, not around the execution of what it has queued.
//
// Batches that wait at the same time share a message, each with a transaction of its own, and only the last commit
// waits for the disk. The rows of the others may be seen some milliseconds before they are durable: see
// Options.SyncEachCommit.
//
// A batch takes three messages, like others, if its message would have more than 64 KiB, if it uses Queue.Expect, if it
// replays or blocks dead letters, and behind a pooler that lends sessions.
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

var queues = handler.Queues[pgx.Tx]{
	New:  func() Queue { return queued.New(guard.AdmitQueued, encodeText) },
	Send: sendInTx, Class: returnedClass,
}

// typeMaps are used by one goroutine at a time.
var typeMaps = sync.Pool{New: func() any {
	m := pgtype.NewMap()
	zoned := &pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &zonedCodec{}}
	m.RegisterType(zoned)
	m.RegisterType(&pgtype.Type{Name: "_timestamptz", OID: pgtype.TimestamptzArrayOID,
		Codec: &pgtype.ArrayCodec{ElementType: zoned}})
	m.RegisterDefaultPgType(pgtype.Timestamptz{}, zoned.Name)
	m.RegisterDefaultPgType(new(pgtype.Timestamptz), zoned.Name)
	return m
}}

// zonedCodec encodes a time in its zone. A column without a zone then gets its wall clock, as from a handler with a
// transaction.
type zonedCodec struct{ pgtype.TimestamptzCodec }

// PlanEncode implements pgtype.Codec.
func (c *zonedCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	plan := c.TimestamptzCodec.PlanEncode(m, oid, format, value)
	if plan == nil || format != pgtype.TextFormatCode {
		return plan
	}
	return zonedPlan{plan}
}

// furthestZone is the distance from UTC, in seconds, from which on the server refuses a zone.
const furthestZone = 16 * 60 * 60

type zonedPlan struct{ pgtype.EncodePlan }

// Encode implements pgtype.EncodePlan. Years outside of 1 to 9999, and zones that the server does not take, are left to
// the driver.
func (p zonedPlan) Encode(value any, buf []byte) ([]byte, error) {
	v, err := value.(pgtype.TimestamptzValuer).TimestamptzValue()
	year := v.Time.Year()
	_, zone := v.Time.Zone()
	if err != nil || !v.Valid || v.InfinityModifier != pgtype.Finite || year < 1 || year > 9999 ||
		max(zone, -zone) >= furthestZone {
		return p.EncodePlan.Encode(value, buf)
	}
	return v.Time.AppendFormat(buf, "2006-01-02 15:04:05.999999Z07:00:00"), nil
}

// encodeText returns an argument as PostgreSQL's text, or nil. A value whose type the driver does not know is encoded
// as JSON.
func encodeText(arg any) (encoded any, size int, err error) {
	var text string
	switch arg := arg.(type) {
	case nil:
		return nil, 0, nil
	case string:
		text = arg
	case int64:
		text = strconv.FormatInt(arg, 10)
	case int:
		text = strconv.Itoa(arg)
	default:
		m := typeMaps.Get().(*pgtype.Map)
		raw, err := m.Encode(0, pgtype.TextFormatCode, arg, []byte{})
		typeMaps.Put(m)
		if _, own := arg.(driver.Valuer); err != nil && !own && marshals(reflect.TypeOf(arg)) {
			raw, err = json.Marshal(arg)
		}
		if err != nil || raw == nil {
			return nil, 0, err
		}
		text = string(raw)
	}
	return text, len(text), nil
}

// marshals reports whether a value of the type may be sent as JSON.
func marshals(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() == reflect.Map || t.Kind() == reflect.Struct
}

// sendInTx executes statements in a transaction in one message.
func sendInTx(ctx context.Context, tx pgx.Tx, statements []queued.Statement) error {
	var batch pgx.Batch
	for _, s := range statements {
		batch.Queue(s.SQL, s.Args...)
	}
	results := tx.SendBatch(ctx, &batch)
	for i, s := range statements {
		if err := executed(results, s, i); err != nil {
			_ = results.Close()
			return fmt.Errorf("statement %d of %d: %w", i+1, len(statements), err)
		}
	}
	return results.Close()
}

// executed returns the error of the next statement of a message, the i-th one.
func executed(results pgx.BatchResults, s queued.Statement, i int) error {
	tag, err := results.Exec()
	switch {
	case err == nil:
		return s.Changed(tag.RowsAffected())
	case i == 0:
		return err // the preparation of another statement may have failed
	}
	return s.Named(err)
}
