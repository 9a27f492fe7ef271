package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/millrace-go/millrace/event"
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
	for e, err := range tenant.ReadAll(ctx, ReadOptions{}) {
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
// an error if an event is another than that of the history.
func (h *history) compare(found *history, at int) (lost, err error) {
	for where, want := range h.events {
		got, ok := found.events[where]
		if !ok && want.after <= at {
			lost = fmt.Errorf("event %d of %s is lost: it was there after operation %d", where.position, where.tenant, want.after)
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
		events[i] = event.Event{Type: "T", Body: fmt.Appendf(nil, `{"n":[%d,%d],"id":%q,"padding":%q}`, i, n, id, padding)}
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

// project writes the events of the tenants to a read model, until finished ends. What it reads must survive, too.
func (w *workload) project(ctx, finished context.Context, tenants []string) error {
	err := w.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `create table if not exists model (tenant text, position integer, body text, primary key (tenant, position));
			create table if not exists checkpoints (tenant text primary key, position integer)`)
		return err
	})
	for err == nil && finished.Err() == nil {
		for _, tenant := range tenants {
			err = errors.Join(err, w.projectOnce(ctx, tenant))
		}
	}
	return err
}

// projectOnce writes the next events of a tenant to the read model, and the checkpoint with them.
func (w *workload) projectOnce(ctx context.Context, name string) error {
	tenant, err := w.store.ForTenant(name)
	if err != nil {
		return err
	}
	return w.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var after int64
		err := tx.QueryRowContext(ctx, "select coalesce(max(position), 0) from checkpoints where tenant = ?", name).Scan(&after)
		n := 0
		for e, failed := range tenant.ReadAll(ctx, ReadOptions{After: after}) {
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			if err := w.saw(name, e.Position, appendedEvent{0, e.Stream, e.Version, string(e.Body)}); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "insert into model values (?, ?, ?)", name, e.Position, e.Body); err != nil {
				return err
			}
			if after, n = e.Position, n+1; n == 5 {
				break
			}
		}
		if err == nil && n > 0 {
			_, err = tx.ExecContext(ctx, "insert into checkpoints values (?, ?) on conflict do update set position = excluded.position", name, after)
		}
		return err
	})
}

// checkModel returns an error unless the read model has the events up to the checkpoint, and no other.
func checkModel(ctx context.Context, store *Store, h *history) error {
	var tables int
	if err := store.DB().QueryRowContext(ctx, "select count(*) from sqlite_schema where name in ('model', 'checkpoints')").Scan(&tables); err != nil || tables == 0 {
		return err
	}
	for name, head := range h.heads {
		var rows, last, checkpoint int64
		err := store.DB().QueryRowContext(ctx, `select count(*), coalesce(max(position), 0), (select coalesce(max(position), 0) from checkpoints where tenant = ?1)
			from model where tenant = ?1`, name).Scan(&rows, &last, &checkpoint)
		if err != nil || rows != checkpoint || last != checkpoint || checkpoint > head {
			return fmt.Errorf("the read model of %s has %d events up to %d, the checkpoint is %d, the last position is %d: %w", name, rows, last, checkpoint, head, err)
		}
		rowsOf, err := store.DB().QueryContext(ctx, "select position, body from model where tenant = ?", name)
		if err != nil {
			return err
		}
		for rowsOf.Next() {
			var position int64
			var body string
			if err = rowsOf.Scan(&position, &body); err == nil && h.events[place{name, position}].body != body {
				err = fmt.Errorf("the read model of %s has %q at %d", name, body, position)
			}
			if err != nil {
				break
			}
		}
		if err := errors.Join(err, rowsOf.Err(), rowsOf.Close()); err != nil {
			return err
		}
	}
	return nil
}

// maintain does what administrators and other processes do, until finished ends.
func (w *workload) maintain(ctx, finished context.Context) error {
	other, err := openDB(dsn(w.path, "_pragma=busy_timeout(10000)", "_pragma=synchronous("+w.synchronous+")"), false)
	if err != nil {
		return err
	}
	for i := 0; err == nil && finished.Err() == nil; i++ {
		switch mode := []string{"passive", "restart", "full", "truncate", "vacuum", "tenant"}[i%6]; mode {
		case "vacuum":
			if err = w.store.writer.take(ctx); err == nil {
				_, err = w.store.writer.db.ExecContext(ctx, "vacuum")
				w.store.writer.give()
			}
		case "tenant":
			_, err = w.store.CreateTenant(ctx, fmt.Sprint("tenant", i))
		default:
			_, err = other.ExecContext(ctx, "pragma wal_checkpoint("+mode+")")
		}
	}
	return errors.Join(err, other.Close())
}
