package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/weak"
	"github.com/millrace-go/millrace/projection"
)

const (
	// tailEvents and tailBytes bound one read of a tail.
	tailEvents = 2000
	tailBytes  = 4 << 20
	// tailFirst bounds it while the size of the events is not known.
	tailFirst = 250
	// gapGrace is how long a gap may take to close by itself before anybody looks at locks. Nearly all do.
	gapGrace = 4 * time.Millisecond
	// headInterval is how far apart checks of the head are at least, of a tenant that is woken and has no new events: it may have
	// been restored.
	headInterval = time.Second
	// gapWaitMost is how far apart the looks at an append that stays open may get.
	gapWaitMost = 250 * time.Millisecond
)

// tail follows the end of one tenant's events: the thin shell around settling. The read that decides comes after the
// scan that found the holders gone, each a statement of its own with a snapshot of its own.
type tail struct {
	tenant  *Tenant
	started bool
	// incarnation is that of the server in which everything below was read.
	incarnation engine.Incarnation
	settling    settling
	// begin is the head that start found. Once it is settled, what lies before it need not be read here.
	begin int64
	// checked is when the head was last compared with the mark.
	checked time.Time
	// seen is when the target was first seen, scans how often its holders were looked for.
	seen  time.Time
	scans int
	held  []string
	// average is about how many bytes an event has, so that few are read in vain.
	average int
	slot    func(ctx context.Context) (release func(), err error)
}

// Tail follows the end of a tenant's events.
func (s Port) Tail(tenant string) engine.Tail {
	t, err := s.ForTenant(tenant)
	if err != nil {
		return failedTail{err}
	}
	return &tail{tenant: t, slot: func(context.Context) (func(), error) { return func() {}, nil }}
}

// ReadWithin sets what is called for a slot before each read.
func (t *tail) ReadWithin(slot func(ctx context.Context) (release func(), err error)) { t.slot = slot }

type failedTail struct{ err error }

func (failedTail) ReadWithin(func(context.Context) (func(), error)) {}

func (t failedTail) Poll(context.Context) (engine.TailUpdate, error) {
	return engine.TailUpdate{}, t.err
}

// Poll reads on from the mark and settles what it can. After an error it forgets everything: observations on a lost
// connection are not valid. In a new incarnation of the server it begins anew.
func (t *tail) Poll(ctx context.Context) (engine.TailUpdate, error) {
	update, err := t.poll(ctx)
	if errors.Is(err, projection.ErrIncarnationChanged) || errors.Is(err, errEventsGone) {
		*t = tail{tenant: t.tenant, slot: t.slot}
		update, err = t.poll(ctx)
	}
	if err != nil {
		err = t.locked(ctx, err)
		*t = tail{tenant: t.tenant, slot: t.slot}
		return engine.TailUpdate{}, fmt.Errorf("read the end of tenant %q: %w", t.tenant.name, ownFault(t.tenant.absent(ctx, err)))
	}
	return update, nil
}

// locked is Tenant.locked within a slot.
func (t *tail) locked(ctx context.Context, err error) error {
	if !isState(err, stateLockTimeout) {
		return err
	}
	release, slotErr := t.slot(ctx)
	if slotErr != nil {
		return &engine.Fault{Class: engine.Infrastructure, Err: fmt.Errorf("%w: %w", projection.ErrTenantLocked, err)}
	}
	defer release()
	return t.tenant.locked(ctx, err)
}

func (t *tail) poll(ctx context.Context) (engine.TailUpdate, error) {
	began := !t.started
	if began {
		if err := t.start(ctx); err != nil {
			return engine.TailUpdate{}, err
		}
	}
	update := engine.TailUpdate{Mark: t.settling.mark, From: t.settling.mark, Incarnation: t.incarnation}
	full := false
	if changed, err := t.look(ctx, began); err != nil {
		return engine.TailUpdate{}, err
	} else if changed {
		if t.settling.cleared && t.settling.target == t.begin {
			t.settling.jump()
			update.From = t.settling.mark
		}
		if full, err = t.read(ctx, &update); err != nil {
			return engine.TailUpdate{}, err
		}
	}
	if t.settling.waiting() && t.scans == 0 && time.Since(t.seen) >= gapGrace {
		// The gap did not close by itself.
		if err := t.scan(ctx); err != nil {
			return engine.TailUpdate{}, err
		}
		if t.settling.cleared {
			var err error
			if full, err = t.read(ctx, &update); err != nil {
				return engine.TailUpdate{}, err
			}
		}
	}
	switch {
	case !t.settling.waiting():
		update.More = full
	case t.settling.cleared, full && len(update.Events) > 0:
		update.More = true
	case t.scans == 0:
		update.Again = max(time.Millisecond, gapGrace-time.Since(t.seen))
	default:
		update.Again = min(gapWaitMost, gapGrace<<min(t.scans, 10))
		update.Held = &projection.Held{Below: t.settling.target, Since: t.seen, Holders: t.held}
	}
	return update, nil
}

// look looks whether those who hold a gap open are still at it, where there are such. It tells whether to read: not
// while nothing changed. just tells that it was looked just now.
func (t *tail) look(ctx context.Context, just bool) (changed bool, err error) {
	if !t.settling.waiting() || t.settling.cleared || t.scans == 0 || just {
		return true, nil
	}
	before := len(t.settling.holders)
	if err := t.scan(ctx); err != nil {
		return false, err
	}
	return t.settling.cleared || len(t.settling.holders) != before, nil
}

// start finds where the tail begins. Most often nobody appends just then, and the highest position is settled at once.
func (t *tail) start(ctx context.Context) error {
	release, err := t.slot(ctx)
	if err != nil {
		return err
	}
	var floor, head int64
	t.incarnation, err = t.tenant.store.readEvents(ctx, t.tenant.sql(t.tenant.store.statements.tailStart), [][]byte{[]byte(t.tenant.name)}, nil, func(rows *pgconn.ResultReader) error {
		return numbers(rows, func(row []int64) { floor, head = row[0], row[1] })
	})
	release()
	if err != nil {
		return err
	}
	if head < floor {
		return fmt.Errorf("the last event is at %d, a checkpoint at %d: %w", head, floor, projection.ErrRestored)
	}
	t.settling, t.begin = settleFrom(floor, head), head
	t.seen = time.Now()
	if t.settling.waiting() {
		if err := t.scan(ctx); err != nil {
			return err
		}
	}
	t.started = true
	return nil
}

// read reads on from the mark and adds to update what is settled of it. full tells that the read met its bounds.
func (t *tail) read(ctx context.Context, update *engine.TailUpdate) (full bool, err error) {
	release, err := t.slot(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	limit := tailFirst
	if t.average > 0 {
		limit = min(tailEvents, max(1, tailBytes/t.average))
	}
	page, err := t.tenant.readPage(ctx, engine.ReadRange{After: t.settling.mark, UpTo: maxPosition, Limit: limit, MaxBytes: tailBytes})
	if err != nil {
		return false, err
	}
	if page.Incarnation != t.incarnation {
		return false, projection.ErrIncarnationChanged
	}
	positions, bytes := make([]int64, len(page.Events)), 0
	for i := range page.Events {
		positions[i] = page.Events[i].Position
		bytes += page.Events[i].Size()
	}
	if len(positions) > 0 {
		t.average = max(1, bytes/len(positions))
	}
	if len(page.Events) == 0 && time.Since(t.checked) >= headInterval {
		if err := t.checkHead(ctx); err != nil {
			return false, err
		}
	}
	before := t.settling.target
	full = page.To != maxPosition
	n := t.settling.read(positions, !full)
	if weak.Broken(weak.Settling) && len(positions) > 0 {
		n = len(positions)
		t.settling = settleFrom(positions[n-1], positions[n-1])
	}
	if t.settling.target != before {
		t.seen, t.scans, t.held = time.Now(), 0, nil
	}
	if n > 0 {
		update.Events = append(update.Events, page.Events[:n]...)
		update.Bytes += page.Bytes
	}
	update.Mark = t.settling.mark
	return full, nil
}

// checkHead begins anew where the events end below the mark: some that were settled are gone.
func (t *tail) checkHead(ctx context.Context) error {
	t.checked = time.Now()
	var head int64
	in, err := t.tenant.store.readEvents(ctx, t.tenant.sql(t.tenant.store.statements.head), nil, nil, func(rows *pgconn.ResultReader) error {
		return numbers(rows, func(row []int64) { head = row[0] })
	})
	switch {
	case err != nil:
		return err
	case in != t.incarnation:
		return projection.ErrIncarnationChanged
	case head < t.settling.mark:
		return errEventsGone
	}
	return nil
}

// errEventsGone is returned where the events end below a mark that was settled.
var errEventsGone = errors.New("events at and below the settled mark are gone")

func (t *tail) scan(ctx context.Context) error {
	holders, in, err := t.tenant.store.locks.scan(ctx, t.tenant.schema)
	if err != nil {
		return err
	}
	if in != t.incarnation {
		return projection.ErrIncarnationChanged
	}
	t.scans++
	names := make([]string, len(holders))
	for i, h := range holders {
		names[i] = h.transaction
	}
	t.settling.scanned(names)
	t.held = nil
	for _, h := range holders {
		if t.settling.holders[h.transaction] {
			t.held = append(t.held, h.String())
		}
	}
	return nil
}

// String names the transaction as an operator finds it in pg_locks.
func (h holder) String() string {
	if h.pid == 0 {
		return "prepared transaction " + h.transaction
	}
	return fmt.Sprintf("backend %d", h.pid)
}

// maxPosition is beyond every position.
const maxPosition = int64(1)<<62 - 1

// readPage reads a piece of the tenant's events. Page.To is UpTo where nothing was left out, else the last position read.
func (t *Tenant) readPage(ctx context.Context, r engine.ReadRange) (engine.Page, error) {
	sql, args := t.sql(t.store.statements.tail), [][]byte{number(r.After), number(r.UpTo), number(int64(r.Limit))}
	if len(r.Types) > 0 {
		sql, args = t.sql(t.store.statements.readRange), append(args, textArray(r.Types))
	}
	var events []event.Envelope
	var held int
	var truncated bool
	in, err := t.store.readEvents(ctx, sql, args, binaryFormat, func(rows *pgconn.ResultReader) (err error) {
		events, held, truncated, err = readEnvelopes(rows, r.MaxBytes)
		return err
	})
	if err != nil {
		return engine.Page{}, err
	}
	page := engine.Page{Events: events, To: r.UpTo, Incarnation: in, Bytes: held}
	if truncated || len(events) >= r.Limit {
		page.To = events[len(events)-1].Position
	}
	return page, nil
}

// Read returns a piece of a tenant's events; see projection.Store.
func (s Port) Read(ctx context.Context, tenant string, r engine.ReadRange) (engine.Page, error) {
	t, err := s.ForTenant(tenant)
	if err != nil {
		return engine.Page{}, err
	}
	page, err := t.readPage(ctx, r)
	if err != nil {
		return engine.Page{}, fmt.Errorf("read events of tenant %q after %d: %w", tenant, r.After, ownFault(t.absent(ctx, t.locked(ctx, err))))
	}
	return page, nil
}
