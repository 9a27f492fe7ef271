package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

// settleBundle is a running runtime with one projection that records in which order it is given events.
type settleBundle struct {
	ctx   context.Context
	store *pgstore.Store
	rt    *millrace.Runtime
}

func setupSettle(t *testing.T) *settleBundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	dsn, err := pgtest.WithSetting(pgtest.Database(t), "pool_max_conns", "10")
	if err != nil {
		t.Fatal(err)
	}
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Pool().Exec(ctx, "create table applied (position bigint, at bigint generated always as identity)"); err != nil {
		t.Fatal(err)
	}
	b := &settleBundle{ctx: ctx, store: store}
	if b.rt, err = millrace.New(millrace.Config{Store: store}); err != nil {
		t.Fatal(err)
	}
	if err := b.rt.Register(millrace.Projection{Name: "p", Handler: pgstore.Batch(recordPositions)}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.rt.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return b
}

func recordPositions(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	for _, e := range events {
		if _, err := tx.Exec(ctx, "insert into public.applied (position) values ($1)", e.Position); err != nil {
			return err
		}
	}
	return nil
}

// applied are the positions in the order in which they were applied, committed those that there are.
func (b *settleBundle) applied(t *testing.T) []int64 {
	return b.positions(t, "select position from applied order by at")
}

func (b *settleBundle) committed(t *testing.T) []int64 {
	return b.positions(t, "select global_seq from millrace_default.events order by 1")
}

func (b *settleBundle) positions(t *testing.T, sql string) []int64 {
	t.Helper()
	rows, err := b.store.Pool().Query(b.ctx, sql)
	if err != nil {
		t.Fatal(err)
	}
	positions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return positions
}

func (b *settleBundle) append(t *testing.T, stream string) int64 {
	t.Helper()
	result, err := b.store.Append(b.ctx, stream, event.Any, event.Event{Type: "counted"})
	if err != nil {
		t.Fatal(err)
	}
	return result.Positions[0]
}

// open appends in a transaction that stays open.
func (b *settleBundle) open(t *testing.T, stream string) (tx pgx.Tx, position int64) {
	t.Helper()
	tx, err := b.store.Pool().Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.ctx)) })
	result, _, err := b.store.AppendTx(b.ctx, tx, stream, event.Any, event.Event{Type: "counted"})
	if err != nil {
		t.Fatal(err)
	}
	return tx, result.Positions[0]
}

// tenantUntil asks for the status of the tenant until done accepts it.
func (b *settleBundle) tenantUntil(t *testing.T, what string, done func(s millrace.TenantStatus) bool) millrace.TenantStatus {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		status, err := b.rt.Status(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(status.Tenants) == 1 && done(status.Tenants[0]) {
			return status.Tenants[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; %+v", what, status)
		}
	}
}

func (b *settleBundle) waitFor(t *testing.T, position int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := b.rt.WaitFor(ctx, millrace.ProjectionID{Name: "p"}, position); err != nil {
		t.Fatal(err)
	}
}

func TestProjectionWaitsForAnOpenAppendAndKeepsOrder(t *testing.T) {
	for name, end := range map[string]func(pgx.Tx, context.Context) error{"commit": pgx.Tx.Commit, "rollback": pgx.Tx.Rollback} {
		t.Run(name, func(t *testing.T) {
			b := setupSettle(t)
			first := b.append(t, "a")
			b.waitFor(t, first)
			open, gap := b.open(t, "open")
			last := b.append(t, "a")
			b.append(t, "b")
			want := []string{fmt.Sprintf("backend %d", open.Conn().PgConn().PID())}
			s := b.tenantUntil(t, "the mark is held", func(s millrace.TenantStatus) bool { return s.Held != nil })
			if s.Mark != gap-1 || s.Head < last || s.Held.Below < last || !slices.Equal(s.Held.Holders, want) {
				t.Errorf("mark %d, head %d, held %+v, want one below %d by %v", s.Mark, s.Head, *s.Held, gap, want)
			}
			last = b.append(t, "c")
			// It stays so, however often somebody looks.
			since := s.Held.Since
			for range 20 {
				s = b.tenantUntil(t, "the mark is held still", func(s millrace.TenantStatus) bool { return s.Held != nil })
			}
			if got := b.applied(t); !slices.Equal(got, []int64{first}) || !s.Held.Since.Equal(since) {
				t.Errorf("applied %v beyond the open append %d; held since %v, and before since %v", got, gap, s.Held.Since, since)
			}
			if err := end(open, b.ctx); err != nil {
				t.Fatal(err)
			}
			b.waitFor(t, last)
			all := b.committed(t)
			if got := b.applied(t); !slices.Equal(got, all) || slices.Contains(got, gap) != (name == "commit") {
				t.Errorf("applied %v, want %v; the open append was %d", got, all, gap)
			}
			b.tenantUntil(t, "the mark is free", func(s millrace.TenantStatus) bool { return s.Held == nil && s.Mark == s.Head })
		})
	}
}

// Appends that overlap in every way, some of them rolled back: what the projection is given rises.
func TestProjectionIsGivenOverlappingAppendsInOrder(t *testing.T) {
	b := setupSettle(t)
	var last int64
	var open []pgx.Tx
	for i := range 60 {
		tx, position := b.open(t, fmt.Sprint("open", i))
		open, last = append(open, tx), max(last, position)
		if len(open) < 4 {
			continue
		}
		// The one in the middle ends first.
		ends := open[len(open)/2]
		open = slices.Delete(open, len(open)/2, len(open)/2+1)
		end := ends.Commit
		if i%5 == 0 {
			end = ends.Rollback
		}
		if err := end(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, tx := range open {
		if err := tx.Commit(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	b.waitFor(t, b.append(t, "end"))
	all := b.committed(t)
	if got := b.applied(t); !slices.Equal(got, all) {
		t.Errorf("applied %v, want %v", got, all)
	}
}
