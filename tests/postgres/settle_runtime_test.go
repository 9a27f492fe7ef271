package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// openAppend appends in a transaction that stays open.
func (b *bundle) openAppend(stream string) (tx pgx.Tx, position int64) {
	b.T.Helper()
	tx, err := b.store.Pool().Begin(b.Ctx)
	b.Must(err)
	b.T.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.Ctx)) })
	result, _, err := b.store.AppendTx(b.Ctx, tx, stream, event.Any, event.Event{Type: "counted"})
	b.Must(err)
	return tx, result.Positions[0]
}

func TestProjectionWaitsForAnOpenAppendAndKeepsOrder(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(pgx.Tx, context.Context) error{"commit": pgx.Tx.Commit, "rollback": pgx.Tx.Rollback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, pgstore.Options{})
			rt := b.Running(millrace.Config{}, b.Recorders("p")...)
			tenantUntil := func(what string, done func(s millrace.TenantStatus) bool) (s millrace.TenantStatus) {
				b.Eventually(what, func() bool { s = b.StatusOf(rt).Tenants[0]; return done(s) })
				return s
			}
			isHeld := func(s millrace.TenantStatus) bool { return s.Held != nil }
			first := b.Append("a", 1).Positions[0]
			b.Reaches(rt, "p", first)
			open, gap := b.openAppend("open")
			last := b.Append("a", 1).Positions[0]
			b.Append("b", 1)
			want := []string{fmt.Sprintf("backend %d", open.Conn().PgConn().PID())}
			s := tenantUntil("the mark is held", isHeld)
			if s.Mark != gap-1 || s.Head < last || s.Held.Below < last || !slices.Equal(s.Held.Holders, want) {
				t.Errorf("mark %d, head %d, held %+v, want one below %d by %v", s.Mark, s.Head, *s.Held, gap, want)
			}
			last = b.Append("c", 1).Positions[0]
			// It stays so, however often the status is read.
			since := s.Held.Since
			for range 20 {
				s = tenantUntil("the mark is held still", isHeld)
			}
			if got := b.Positions("p"); !slices.Equal(got, []int64{first}) || !s.Held.Since.Equal(since) {
				t.Errorf("applied %v beyond the open append %d; held since %v, and before since %v", got, gap, s.Held.Since, since)
			}
			b.Must(end(open, b.Ctx))
			b.Reaches(rt, "p", last)
			b.Verify("p")
			if slices.Contains(b.Positions("p"), gap) != (name == "commit") {
				t.Errorf("applied %v; the open append was %d", b.Positions("p"), gap)
			}
			tenantUntil("the mark is free", func(s millrace.TenantStatus) bool { return s.Held == nil && s.Mark == s.Head })
		})
	}
}

// Appends overlap in every way, and some of them are rolled back. The projection gets rising positions.
func TestProjectionIsGivenOverlappingAppendsInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "10")
	rt := b.Running(millrace.Config{}, b.Recorders("p")...)
	var open []pgx.Tx
	for i := range 60 {
		tx, _ := b.openAppend(fmt.Sprint("open", i))
		open = append(open, tx)
		if len(open) < 4 {
			continue
		}
		// The one in the middle ends first.
		ends := open[len(open)/2]
		open = slices.Delete(open, len(open)/2, len(open)/2+1)
		if i%5 == 0 {
			b.Must(ends.Rollback(b.Ctx))
		} else {
			b.Must(ends.Commit(b.Ctx))
		}
	}
	for _, tx := range open {
		b.Must(tx.Commit(b.Ctx))
	}
	b.Reaches(rt, "p", b.Append("end", 1).Positions[0])
	b.Verify("p")
}
