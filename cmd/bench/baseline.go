package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// baselineChannel is the channel of the LISTEN loop.
	baselineChannel = "bench_by_hand"
	// baselineBatch is how many events the loop reads at a time: the default of millrace.
	baselineBatch = 500
)

// countAs returns the handler of all contenders, with one statement for each batch.
func countAs(contender string) batchFunc {
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		types := make([]string, len(events))
		for i := range events {
			types[i] = events[i].Type
		}
		_, err := tx.Exec(ctx, `insert into `+tableSchema+`.counts (contender, type, n)
			select $1, t, count(*) from unnest($2::text[]) as t group by t
			on conflict (contender, type) do update set n = counts.n + excluded.n`, contender, types)
		return err
	}
}

// batchFunc applies events in a transaction.
type batchFunc = func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error

// baselineLoop is the handwritten loop: read after the checkpoint, apply, advance the checkpoint.
type baselineLoop struct {
	conn     *pgx.Conn
	events   string
	name     string
	handle   batchFunc
	position int64
}

func (e *env) baselineLoop(conn *pgx.Conn, name string) *baselineLoop {
	return &baselineLoop{conn: conn, events: e.events(), name: name, handle: countAs(name)}
}

// start begins at the first event, or after the last one.
func (h *baselineLoop) start(ctx context.Context, atEnd bool) error {
	if atEnd {
		if err := h.conn.QueryRow(ctx, "select coalesce(max(global_seq), 0) from "+h.events).Scan(&h.position); err != nil {
			return err
		}
	}
	_, err := h.conn.Exec(ctx, "insert into "+tableSchema+".checkpoint values ($1, $2)", h.name, h.position)
	return err
}

// step reads, applies and commits one batch, and returns its number of events.
func (h *baselineLoop) step(ctx context.Context) (int, error) {
	events, err := h.read(ctx)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	last := events[len(events)-1].Position
	err = pgx.BeginFunc(ctx, h.conn, func(tx pgx.Tx) error {
		if err := h.handle(ctx, tx, events); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update "+tableSchema+".checkpoint set position = $2 where contender = $1", h.name, last)
		return err
	})
	h.position = last
	return len(events), err
}

func (h *baselineLoop) read(ctx context.Context) ([]event.Envelope, error) {
	rows, err := h.conn.Query(ctx, `select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
		from `+h.events+` where global_seq > $1 order by global_seq limit $2`, h.position, baselineBatch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e event.Envelope, err error) {
		var headers []byte // there are none
		var causation, correlation *string
		err = row.Scan(&e.Position, &e.Stream, &e.Version, &e.Type, &e.Body, &headers, &causation, &correlation, &e.Time)
		return e, err
	})
}

// listen applies events when it is notified, and sends its position, until ctx ends.
func (h *baselineLoop) listen(ctx context.Context, applied chan<- int64) error {
	for {
		_, err := h.conn.WaitForNotification(ctx)
		if err == nil {
			_, err = h.step(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case applied <- h.position:
		case <-ctx.Done():
			return nil
		}
	}
}

// appendBaseline appends one event and notifies within the transaction.
func appendBaseline(ctx context.Context, store *pgstore.Store, stream string) (position int64, err error) {
	err = pgx.BeginFunc(ctx, store.Pool(), func(tx pgx.Tx) error {
		result, _, err := store.AppendTx(ctx, tx, stream, event.Any, probe)
		if err != nil {
			return err
		}
		position = result.Positions[0]
		_, err = tx.Exec(ctx, "select pg_notify('"+baselineChannel+"', '')")
		return err
	})
	return position, err
}
