package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// handBatch is how many events the handwritten code reads and applies at a time at most. With more it is not
	// faster.
	handBatch = 2000
	// handAhead is how many batches it reads ahead.
	handAhead = 2
)

// handLoop is the handwritten loop: read after the checkpoint, apply, advance the checkpoint. One connection reads
// ahead while another applies. All statements are prepared. A batch is applied in one round trip. It handles no gaps,
// leases or failures.
type handLoop struct {
	reader, writer *pgx.Conn
	name           string
	position       int64
	size           int // of the last read
	tally          tally
}

const eventColumns = "global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at"

// handLoop connects, and begins at the first event or after the last one.
func (e *env) handLoop(ctx context.Context, tenant *pgstore.Tenant, name string,
	atEnd bool) (_ *handLoop, closeLoop func(), err error) {
	l := &handLoop{name: name}
	var closers []func()
	closeLoop = func() {
		for _, closeConn := range closers {
			closeConn()
		}
	}
	defer func() {
		if err != nil {
			closeLoop()
		}
	}()
	for _, conn := range []**pgx.Conn{&l.reader, &l.writer} {
		c, closeConn, err := e.connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		*conn, closers = c, append(closers, closeConn)
	}
	if atEnd {
		if err := l.writer.QueryRow(ctx, "select coalesce(max(global_seq), 0) from "+
			eventsOf(tenant)).Scan(&l.position); err != nil {
			return nil, nil, err
		}
	}
	if _, err := l.writer.Exec(ctx, "insert into bench.checkpoint values ($1, $2)", name, l.position); err != nil {
		return nil, nil, err
	}
	read := fmt.Sprintf("select "+eventColumns+" from "+eventsOf(tenant)+
		" where global_seq > $1 order by global_seq limit %d", handBatch)
	if _, err := l.reader.Prepare(ctx, "read", read); err != nil {
		return nil, nil, err
	}
	for name, sql := range map[string]string{"apply": countTypesSQL,
		"advance": "update bench.checkpoint set position = $2 where contender = $1"} {
		if _, err := l.writer.Prepare(ctx, name, sql); err != nil {
			return nil, nil, err
		}
	}
	return l, closeLoop, nil
}

// read returns the events after a position.
func (l *handLoop) read(ctx context.Context, after int64) ([]event.Envelope, error) {
	rows, err := l.reader.Query(ctx, "read", after)
	if err != nil {
		return nil, err
	}
	events, err := scanEvents(rows, l.size)
	l.size = len(events)
	return events, err
}

// scanEvents reads the events of rows, of which there are probably this many.
func scanEvents(rows pgx.Rows, probably int) ([]event.Envelope, error) {
	defer rows.Close()
	events := make([]event.Envelope, 0, probably)
	var columns eventRow
	for rows.Next() {
		if err := rows.Scan(columns.into()...); err != nil {
			return nil, err
		}
		events = append(events, columns.e)
	}
	return events, rows.Err()
}

// eventRow takes the columns of an event.
type eventRow struct {
	e                      event.Envelope
	headers                []byte // there are none
	causation, correlation *string
	list                   [9]any
}

// into returns where the columns of the next row go.
func (r *eventRow) into() []any {
	r.e = event.Envelope{}
	r.list = [9]any{
		&r.e.Position, &r.e.Stream, &r.e.Version, &r.e.Type, (*[]byte)(&r.e.Body), &r.headers, &r.causation,
		&r.correlation, &r.e.Time,
	}
	return r.list[:]
}

// apply applies and commits a batch in one round trip.
func (l *handLoop) apply(ctx context.Context, events []event.Envelope) error {
	l.tally.see(events)
	last := events[len(events)-1].Position
	var batch pgx.Batch
	batch.Queue("begin")
	batch.Queue("apply", l.name, typesOf(events))
	batch.Queue("advance", l.name, last)
	batch.Queue("commit")
	if err := l.writer.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	l.position = last
	return nil
}

// step reads and applies everything that is there, and returns whether there was something.
func (l *handLoop) step(ctx context.Context) (bool, error) {
	events, err := l.read(ctx, l.position)
	if err != nil || len(events) == 0 {
		return false, err
	}
	return true, l.apply(ctx, events)
}

// catchUp applies all events, and reads ahead meanwhile.
func (l *handLoop) catchUp(ctx context.Context) error {
	ahead := make(chan []event.Envelope, handAhead)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(ahead)
		for position := l.position; ; {
			events, err := l.read(ctx, position)
			if err != nil || len(events) == 0 {
				return err
			}
			position = events[len(events)-1].Position
			select {
			case ahead <- events:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	group.Go(func() error {
		for events := range ahead {
			if err := l.apply(ctx, events); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// handChannel is the channel of the LISTEN loops.
const handChannel = "bench_by_hand"

// notifyByHand is the notification in the transaction of an append.
const notifyByHand = "select pg_notify('" + handChannel + "', '')"

// listen applies events when it is notified, and reports its position, until ctx ends. The connection that reads also
// listens.
func (l *handLoop) listen(ctx context.Context, applied func(position int64)) error {
	if _, err := l.reader.Exec(ctx, "listen "+handChannel); err != nil {
		return err
	}
	return l.follow(ctx, func(ctx context.Context) error { _, err := l.reader.WaitForNotification(ctx); return err },
		applied)
}

// follow applies events whenever wait returns, and reports its position, until ctx ends.
func (l *handLoop) follow(ctx context.Context, wait func(ctx context.Context) error,
	applied func(position int64)) error {
	for {
		err := wait(ctx)
		for more := true; more && err == nil; {
			more, err = l.step(ctx)
			if more {
				applied(l.position)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
