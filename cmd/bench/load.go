package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// streamsPerWriter is how many streams each writer appends to. Each round has streams of its own.
const streamsPerWriter = 100

var probe = event.Event{Type: "probed", Body: []byte(`{"amount": 26.85}`)}

// appendFunc appends one event, and returns its position.
type appendFunc func(ctx context.Context, stream string) (int64, error)

// appendTo returns the appendFunc of millrace.
func appendTo(store event.Appender) appendFunc {
	return func(ctx context.Context, stream string) (int64, error) {
		result, err := store.Append(ctx, stream, event.Any, probe)
		if err != nil {
			return 0, err
		}
		return result.Positions[0], nil
	}
}

// write lets writers append for a while, each at least once, and returns the number of appends.
func write(ctx context.Context, duration time.Duration, prefix string,
	writers []appendFunc) (n int, rate float64, err error) {
	return together(ctx, duration, len(writers), func(ctx context.Context, w, i int) error {
		_, err := writers[w](ctx, fmt.Sprintf("%s-%d-%d", prefix, w, i%streamsPerWriter))
		return err
	})
}

// together lets writers call do for a while, each at least once, with their number and that of the call. It returns the
// number of calls.
func together(ctx context.Context, duration time.Duration, writers int,
	do func(ctx context.Context, w, i int) error) (n int, rate float64, err error) {
	var count atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for w := range writers {
		group.Go(func() error {
			for i := 0; i == 0 || time.Since(begin) < duration; i++ {
				if err := do(ctx, w, i); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err = group.Wait()
	return int(count.Load()), perSecond(int(count.Load()), begin), err
}

// writersText returns a number of writers in words.
func writersText(n int) string {
	if n == 1 {
		return "1 writer"
	}
	return fmt.Sprintf("%d writers", n)
}

// repeat returns the same writer several times.
func repeat(n int, writer appendFunc) []appendFunc {
	writers := make([]appendFunc, n)
	for i := range writers {
		writers[i] = writer
	}
	return writers
}

// fill appends events of several types to many streams.
func (e *env) fill(ctx context.Context, store *pgstore.Tenant, events int) error {
	if err := fillStore(ctx, store.Append, events); err != nil {
		return fmt.Errorf("append the events: %w", err)
	}
	_, err := e.Pool.Exec(ctx, "vacuum analyze "+eventsOf(store))
	return err
}

// filledTypes is the number of types of fillStore, and filledType the type of its event number k.
const filledTypes = 14

func filledType(k int) string { return fmt.Sprint("type ", k%filledTypes) }

// fillStore appends events of several types to many streams of a store.
func fillStore(ctx context.Context, appendTo func(context.Context,
	string, event.Expected, ...event.Event) (event.Appended, error), events int) error {
	const batch, writers = 1000, 4
	group, filling := errgroup.WithContext(ctx)
	for w := range writers {
		group.Go(func() error {
			for i := w * batch; i < events; i += writers * batch {
				list := make([]event.Event, min(batch, events-i))
				for k := range list {
					body, err := json.Marshal(map[string]any{
						"id": fmt.Sprint("step ", i+k), "role": "EMPLOYEE", "amount": float64(k) / 100,
					})
					if err != nil {
						return err
					}
					list[k] = event.Event{Type: filledType(k), Body: body}
				}
				if _, err := appendTo(filling, fmt.Sprint("filled", i), event.Any, list...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// eventsOf returns the name of the table of events of a tenant.
func eventsOf(tenant *pgstore.Tenant) string { return tenant.EventsSchema() + ".events" }

// handAppend returns the statement by which handwritten code appends one event: it raises the version of the stream and
// inserts the event in one round trip. $1 stream, $2 type, $3 body.
func handAppend(tenant *pgstore.Tenant) string {
	schema := tenant.EventsSchema()
	return `with stream as (
		insert into ` + schema + `.streams as s (stream_id, version) values ($1::text, 1)
		on conflict (stream_id) do update set version = s.version + 1 returning version
	)
	insert into ` + schema + `.events (stream_id, stream_version, type, body) select $1, version, $2::text, $3::jsonb from stream returning global_seq`
}

// handWriter returns a handwritten writer with a connection of its own and prepared statements. It sends the statements
// before the append, the append, and those after it, in one round trip and one transaction.
func (e *env) handWriter(ctx context.Context, tenant *pgstore.Tenant, before,
	after []string) (appendFunc, func(), error) {
	conn, closeConn, err := e.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i, sql := range append(append([]string{handAppend(tenant)}, before...), after...) {
		if _, err := conn.Prepare(ctx, fmt.Sprint("s", i), sql); err != nil {
			closeConn()
			return nil, nil, err
		}
	}
	body := string(probe.Body)
	return func(ctx context.Context, stream string) (position int64, err error) {
		if len(before)+len(after) == 0 {
			err = conn.QueryRow(ctx, "s0", stream, probe.Type, body).Scan(&position)
			return position, err
		}
		var batch pgx.Batch
		for i := range before {
			batch.Queue(fmt.Sprint("s", 1+i))
		}
		batch.Queue("s0", stream, probe.Type, body).QueryRow(func(row pgx.Row) error { return row.Scan(&position) })
		for i := range after {
			batch.Queue(fmt.Sprint("s", 1+len(before)+i))
		}
		err = conn.SendBatch(ctx, &batch).Close()
		return position, err
	}, closeConn, nil
}

// handWriters returns several writers, and the function that closes their connections.
func (e *env) handWriters(ctx context.Context, n int, tenant *pgstore.Tenant, before,
	after []string) ([]appendFunc, func(), error) {
	var writers []appendFunc
	var closers []func()
	closeAll := func() {
		for _, closeConn := range closers {
			closeConn()
		}
	}
	for range n {
		writer, closeConn, err := e.handWriter(ctx, tenant, before, after)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		writers, closers = append(writers, writer), append(closers, closeConn)
	}
	return writers, closeAll, nil
}

// streamsAreWhole verifies that a table has this number of events, and that the versions of each stream begin at 1,
// have no gap, and rise with the positions.
func (e *env) streamsAreWhole(tenant *pgstore.Tenant, events int) verify {
	return all(
		e.isCount(events, "the store has", "select count(*) from "+eventsOf(tenant)),
		e.isCount(0, "out of order are", `select count(*) from (
			select stream_version, row_number() over (partition by stream_id order by global_seq) as number from `+eventsOf(tenant)+`
			) as e where stream_version <> number`),
	)
}
