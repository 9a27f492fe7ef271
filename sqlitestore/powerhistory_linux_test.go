package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
)

// history is what a store did: the events of its answered appends, and the events that readers saw.
type history struct {
	events map[place]appendedEvent
	// heads are the last positions of the tenants.
	heads map[string]int64
}

// place is that of an event.
type place struct {
	tenant   string
	position int64
}

// appendedEvent is an event that was answered, or seen by a reader, after so many operations on the files.
type appendedEvent struct {
	after   int
	stream  string
	version int64
	body    string
}

// note adds an event. A later note of the same event changes nothing.
func (h *history) note(tenant string, position int64, e appendedEvent) error {
	if h.events == nil {
		h.events, h.heads = make(map[place]appendedEvent), make(map[string]int64)
	}
	at := place{tenant, position}
	was, ok := h.events[at]
	if !ok {
		h.events[at] = e
		h.heads[tenant] = max(h.heads[tenant], position)
		return nil
	}
	e.after, was.after = 0, 0
	if e != was {
		return fmt.Errorf("position %d of %s has two events: %+v and %+v", position, tenant, was, e)
	}
	return nil
}

// durable returns a copy, of which everything is durable from the first operation on.
func (h *history) durable() *history {
	durable := &history{}
	for at, e := range h.events {
		e.after = 0
		_ = durable.note(at.tenant, at.position, e)
	}
	return durable
}

// read notes the events of a tenant. It returns an error if they have gaps, or an append is there in part.
func (h *history) read(ctx context.Context, store *Store, name string) error {
	tenant, err := store.ForTenant(name)
	if err != nil {
		return err
	}
	versions, open, next := make(map[string]int64), 0, int64(1)
	for e, err := range tenant.ReadAll(ctx, event.ReadOptions{}) {
		if err != nil {
			return err
		}
		var id string
		var i, of int
		if _, err := fmt.Sscanf(string(e.Body), `{"n":[%d,%d],"id":%q`, &i, &of, &id); err != nil {
			return fmt.Errorf("event %d of %s: body %q: %w", e.Position, name, e.Body, err)
		}
		versions[e.Stream]++
		if e.Position != next || e.Version != versions[e.Stream] || i != open {
			return fmt.Errorf("event %d of %s is version %d of %s, number %d of its append; it should be at %d, version %d, number %d",
				e.Position, name, e.Version, e.Stream, i, next, versions[e.Stream], open)
		}
		next, open = next+1, (open+1)%of
		if err := h.note(name, e.Position, appendedEvent{0, e.Stream, e.Version, string(e.Body)}); err != nil {
			return err
		}
	}
	if open != 0 {
		return fmt.Errorf("the last append of %s is there in part", name)
	}
	return nil
}

// compare returns lost if an event of the history is missing that was answered or seen before operation at. It returns
// an error if an event differs from that of the history.
func (h *history) compare(found *history, at int) (lost, err error) {
	for where, want := range h.events {
		got, ok := found.events[where]
		if !ok && want.after <= at {
			lost = fmt.Errorf("event %d of %s is lost: it was there after operation %d", where.position, where.tenant,
				want.after)
		}
		want.after = 0
		if ok && got != want {
			err = fmt.Errorf("event %d of %s is %+v, and was %+v", where.position, where.tenant, got, want)
		}
	}
	return lost, err
}

// continues appends to each tenant. The new event must be the next one.
func (h *history) continues(ctx context.Context, store *Store) error {
	for name, head := range h.heads {
		tenant, err := store.ForTenant(name)
		if err != nil {
			return err
		}
		r, err := tenant.Append(ctx, "after", event.NoStream, event.Event{Type: "T"})
		if err != nil || r.Positions[0] != head+1 {
			return fmt.Errorf("append after the power loss: %+v after position %d, %w", r, head, err)
		}
	}
	return nil
}

// appendSome appends to the tenants. Some appends are large, some have a key.
func (w *workload) appendSome(ctx context.Context, random *rand.Rand, tenants []string, stream string) error {
	for range 25 {
		tenant, err := w.store.ForTenant(tenants[random.IntN(len(tenants))])
		if err != nil {
			return err
		}
		padding := strings.Repeat("x", []int{10, 100, 6000}[random.IntN(3)])
		if err := w.appendTo(ctx, tenant, stream, fmt.Sprint(random.Uint64()), 1+random.IntN(3), padding); err != nil {
			return err
		}
	}
	return nil
}

// appendTo appends n events, and notes them when they are answered.
func (w *workload) appendTo(ctx context.Context, tenant *Tenant, stream, id string, n int, padding string) error {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{
			Type: "T", Body: fmt.Appendf(nil, `{"n":[%d,%d],"id":%q,"padding":%q}`, i, n, id, padding),
		}
	}
	expected := event.Any
	if id > "5" { // about half of them
		expected = expected.WithKey(id)
	}
	r, err := tenant.Append(ctx, stream, expected, events...)
	if err != nil {
		return err
	}
	for i, e := range events {
		version := r.Version - int64(n-1-i)
		if err := w.saw(tenant.Name(), r.Positions[i], appendedEvent{0, stream, version, string(e.Body)}); err != nil {
			return err
		}
	}
	return nil
}

// saw notes an event that is known by now.
func (w *workload) saw(tenant string, position int64, e appendedEvent) error {
	e.after = w.disk.Len()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.note(tenant, position, e)
}

// createModel creates the read model of the projection "model".
func (w *workload) createModel(ctx context.Context) error {
	return w.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			"create table if not exists model (tenant text, position integer, body text, primary key (tenant, position))")
		return err
	})
}

// project runs the projection "model" until ctx ends.
func (w *workload) project(ctx context.Context) error {
	rt, err := millrace.New(millrace.Config{Store: tuning.Settings{Store: w.store, Advance: 50 * time.Millisecond}})
	if err == nil {
		err = rt.Register(millrace.Projection{Name: "model", MaxEvents: 5, Handler: Batch(w.model)})
	}
	if err != nil {
		return err
	}
	return rt.Run(ctx)
}

// model writes the events of a batch to the read model. Events that it gets must survive, too.
func (w *workload) model(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
	id, _ := millrace.ProjectionFrom(ctx)
	for _, e := range events {
		if err := w.saw(id.Tenant, e.Position, appendedEvent{0, e.Stream, e.Version, string(e.Body)}); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "insert into model values (?, ?, ?)", id.Tenant, e.Position,
			e.Body); err != nil {
			return err
		}
	}
	return nil
}

// checkModel returns an error unless the read model has the events up to the checkpoint, and no other, and nothing is
// parked.
func checkModel(ctx context.Context, store *Store, h *history) error {
	if tables, err := texts(store, "select name from sqlite_schema where name = 'model'"); err != nil ||
		len(tables) == 0 {
		return err
	}
	for name, head := range h.heads {
		var rows, last, checkpoint, parked int64
		err := store.DB().QueryRowContext(ctx,
			`select count(*), coalesce(max(m.position), 0), (select count(*) from millrace_dead_letters),
			coalesce((select l.checkpoint from millrace_leases l join millrace_projections p using (id) join millrace_tenants t on t.id = p.tenant where t.name = ?1), 0)
			from model m where m.tenant = ?1`, name).Scan(&rows, &last, &parked, &checkpoint)
		if err != nil || rows != checkpoint || last != checkpoint || checkpoint > head || parked != 0 {
			return fmt.Errorf("the read model of %s has %d events up to %d, the checkpoint is %d, the last position is %d, and %d events are parked: %w",
				name, rows, last, checkpoint, head, parked, err)
		}
		bodies, err := texts(store, "select body from model where tenant = ? order by position", name)
		if err != nil {
			return err
		}
		for i, body := range bodies {
			if want := h.events[place{name, int64(i + 1)}].body; body != want {
				return fmt.Errorf("the read model of %s has %q at %d, want %q", name, body, i+1, want)
			}
		}
	}
	return nil
}

// maintain does what administrators and other processes do, until finished ends.
func (w *workload) maintain(ctx, finished context.Context) error {
	other, err := openDB(dsn(w.path, "_pragma=busy_timeout(10000)", "_pragma=synchronous("+w.synchronous+")"), nil,
		false)
	if err != nil {
		return err
	}
	for i := 0; err == nil && finished.Err() == nil; i++ {
		switch mode := []string{"passive", "restart", "full", "truncate", "vacuum", "tenant"}[i%6]; mode {
		case "vacuum":
			err = w.store.writer.take(ctx)
			if err == nil {
				_, err = w.store.writer.db.ExecContext(ctx, "vacuum")
				w.store.writer.give()
			}
		case "tenant":
			_, err = w.store.CreateTenant(ctx, fmt.Sprint("tenant", i%12)) // two, and then none
		default:
			_, err = other.ExecContext(ctx, "pragma wal_checkpoint("+mode+")")
		}
	}
	return errors.Join(err, other.Close())
}
