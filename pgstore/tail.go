package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/pgstore/internal/settle"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// headInterval is the shortest time between two checks whether a tenant without new events was restored.
const headInterval = time.Second

// tailPoller implements engine.TailPoller. It reads events and scans locks for a settle.Settler. After the scan that
// finds the lock holders gone, it reads again, in another statement with a new snapshot.
type tailPoller struct {
	reads  *eventReads
	tenant namedTenant
	// invalid is the error of an invalid tenant name, nil if the name is valid.
	invalid error
	started bool
	// incarnation is the server's incarnation when everything below was read.
	incarnation engine.Incarnation
	settler     settle.Settler
	// checked is when the head was last compared with the mark.
	checked time.Time
	// size bounds how many events are read.
	size eventlog.EventSize
	slot engine.ReadSlot
}

func (r *eventReads) TailPoller(tenant string) engine.TailPoller {
	t, err := r.named(tenant)
	return &tailPoller{reads: r, tenant: t, invalid: err, slot: engine.NoReadSlot}
}

func (t *tailPoller) ReadWithin(slot engine.ReadSlot) { t.slot = slot }

// Poll implements engine.TailPoller. It starts again in a new incarnation of the server. After an error it forgets
// everything, because observations on a lost connection are not valid.
func (t *tailPoller) Poll(ctx context.Context) (engine.TailUpdate, error) {
	if t.invalid != nil {
		return engine.TailUpdate{}, t.invalid
	}
	update, err := t.poll(ctx)
	if gone := errors.Is(err, errEventsGone); gone || errors.Is(err, event.ErrIncarnationChanged) {
		*t = tailPoller{reads: t.reads, tenant: t.tenant, slot: t.slot}
		update, err = t.poll(ctx)
		update.Gone = gone
	}
	if err != nil {
		*t = tailPoller{reads: t.reads, tenant: t.tenant, slot: t.slot}
		return engine.TailUpdate{}, fmt.Errorf("read the tail of tenant %q: %w",
			t.tenant.name, storeFault(t.tenant.absent(ctx, err)))
	}
	return update, nil
}

func (t *tailPoller) poll(ctx context.Context) (update engine.TailUpdate, err error) {
	changed := true
	switch {
	case !t.started:
		if err := t.start(ctx); err != nil {
			return update, err
		}
		changed = t.settler.Waiting() // otherwise nothing was visible after the mark
	case t.settler.Waiting() && t.settler.Scanned() && !t.settler.Cleared():
		changed, err = t.scan(ctx) // nothing is read while the holders are the same
		if err != nil {
			return update, err
		}
	}
	update = engine.TailUpdate{Mark: t.settler.Mark(), From: t.settler.Mark(), Incarnation: t.incarnation}
	full := false
	if changed {
		full, err = t.read(ctx, &update)
		if err != nil {
			return update, err
		}
	}
	if t.settler.ScanDue(time.Now()) {
		_, err = t.scan(ctx)
		if err != nil {
			return update, err
		}
		if t.settler.Cleared() {
			full, err = t.read(ctx, &update)
			if err != nil {
				return update, err
			}
		}
	}
	switch s := &t.settler; {
	case !s.Waiting():
		update.More = full
	case s.Cleared(), full && len(update.Events) > 0:
		update.More = true
	default:
		update.Again = s.Wait(time.Now())
		if s.Scanned() {
			below, since, holders := s.Held()
			update.Held = &engine.Held{Below: below, Since: since, Holders: holders}
		}
	}
	return update, nil
}

// Take implements engine.TailPoller: see settle.Settler.Take. The events must have been committed in the incarnation of
// the mark. Otherwise that server has lost events, and draws their positions again.
func (t *tailPoller) Take(own *engine.Page) (engine.TailUpdate, bool) {
	positions := make([]int64, len(own.Events))
	for i := range own.Events {
		positions[i] = own.Events[i].Position
	}
	from := t.settler.Mark()
	if !t.started || own.Incarnation != t.incarnation || !t.settler.Take(positions) {
		return engine.TailUpdate{}, false
	}
	return engine.TailUpdate{Mark: t.settler.Mark(), From: from, Incarnation: t.incarnation, Events: own.Events,
		Bytes: own.Bytes}, true
}

// start finds where the tail begins. If no append is in progress, the highest position is settled at once.
func (t *tailPoller) start(ctx context.Context) error {
	from, err := t.reads.starts.of(ctx, t.tenant.name, func() (tailStart, error) { return t.startAlone(ctx) })
	if err != nil {
		return err
	}
	if from.head < from.floor {
		return engine.Restored(from.head, from.floor)
	}
	t.incarnation, t.settler, t.checked = from.in, settle.New(from.floor, from.head, time.Now()), time.Now()
	if t.settler.Waiting() {
		if _, err := t.scan(ctx); err != nil {
			return err
		}
	}
	t.started = true
	return nil
}

// startAlone finds where the tail begins, if it does not start together with others.
func (t *tailPoller) startAlone(ctx context.Context) (from tailStart, err error) {
	ctx, release, err := t.slot(ctx)
	if err != nil {
		return from, err
	}
	defer release()
	from.in, err = t.reads.readOf(ctx, t.tenant, t.tenant.sql("tail_start"), [][]byte{[]byte(t.tenant.name)}, nil,
		func(rows *pgconn.ResultReader) error {
			return wire.ReadInts(rows, func(row []int64) { from.floor, from.head = row[0], row[1] })
		})
	return from, err
}

// read reads after the mark and adds the settled events to update. full reports whether the read reached a limit.
func (t *tailPoller) read(ctx context.Context, update *engine.TailUpdate) (full bool, err error) {
	ctx, release, err := t.slot(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	limit := t.size.Limit()
	page, err := t.reads.readPage(ctx, t.tenant, engine.ReadRange{After: t.settler.Mark(),
		UpTo: maxPosition, Limit: limit, MaxBytes: eventlog.TailBytes})
	if err != nil {
		return false, err
	}
	if page.Incarnation != t.incarnation {
		return false, event.ErrIncarnationChanged
	}
	positions, bytes := make([]int64, len(page.Events)), 0
	for i := range page.Events {
		positions[i] = page.Events[i].Position
		bytes += page.Events[i].Size()
	}
	t.size.Observe(len(positions), bytes)
	if len(page.Events) == 0 && time.Since(t.checked) >= headInterval {
		if err := t.checkHead(ctx); err != nil {
			return false, err
		}
	}
	full = page.To != maxPosition
	n := t.settler.Read(positions, !full, time.Now())
	if n > 0 {
		update.Events = append(update.Events, page.Events[:n]...)
		update.Bytes += page.Bytes
	}
	update.Mark = t.settler.Mark()
	return full, nil
}

// checkHead returns errEventsGone if the events end below the mark.
func (t *tailPoller) checkHead(ctx context.Context) error {
	t.checked = time.Now()
	var head int64
	err := t.reads.readNumbers(ctx, t.tenant, t.incarnation, "head", nil, func(row []int64) { head = row[0] })
	if err == nil && head < t.settler.Mark() {
		err = errEventsGone
	}
	return err
}

// errEventsGone is returned if settled events are gone.
var errEventsGone = errors.New("events at and below the settled mark are gone")

// scan scans the locks, and reports whether a read may find more than before.
func (t *tailPoller) scan(ctx context.Context) (changed bool, err error) {
	holders, in, err := t.reads.locks.scan(ctx, t.tenant.schema)
	if err != nil {
		return false, err
	}
	if in != t.incarnation {
		return false, event.ErrIncarnationChanged
	}
	return t.settler.Scan(holders[t.tenant.schema]), nil
}
