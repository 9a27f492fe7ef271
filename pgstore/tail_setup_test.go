package pgstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
)

// hangs is how long something may take that happens within milliseconds: only a hang takes longer.
const hangs = 30 * time.Second

// follower follows a tenant's tail as a feed does, without wake-ups, and keeps what it was told.
type follower struct {
	tenant    *Tenant // nil: what is passed over is not read
	tail      engine.Tail
	in        engine.Incarnation
	started   bool
	mark      int64
	positions []int64
	polls     int
}

// follow begins at the tenant's end.
func follow(t *testing.T, store *Store, tenant string) *follower {
	t.Helper()
	of := must(store.ForTenant(tenant))(t)
	f := &follower{tenant: of, tail: store.port().Tail(tenant)}
	must(f.poll(testContext(t)))(t)
	return f
}

// poll looks once, and checks what every update must keep to.
func (f *follower) poll(ctx context.Context) (engine.TailUpdate, error) {
	f.polls++
	u, err := f.tail.Poll(ctx)
	if err != nil {
		return u, err
	}
	if f.started && u.Incarnation == f.in && u.From != f.mark && (u.From != u.Mark || len(u.Events) > 0) {
		return u, fmt.Errorf("the mark was %d, and the update begins at %d", f.mark, u.From)
	}
	if f.tenant != nil && f.started && u.From != f.mark {
		// What a tail passes over when it begins anew, projections read for themselves.
		page, err := f.tenant.readPage(ctx, engine.ReadRange{After: f.mark, UpTo: u.From, Limit: 1000})
		if err != nil {
			return u, err
		}
		for _, e := range page.Events {
			f.positions = append(f.positions, e.Position)
		}
		f.mark = u.From
	}
	f.in = u.Incarnation
	last := u.From
	for _, e := range u.Events {
		if e.Position <= last || e.Position > u.Mark {
			return u, fmt.Errorf("from %d to %d came position %d behind %d", u.From, u.Mark, e.Position, last)
		}
		last = e.Position
		f.positions = append(f.positions, e.Position)
	}
	switch {
	case u.Held != nil && (u.Again == 0 || len(u.Held.Holders) == 0 || u.Held.Below <= u.Mark || u.Held.Since.IsZero()):
		return u, fmt.Errorf("the mark %d is held by %+v, to be looked at again after %v", u.Mark, *u.Held, u.Again)
	}
	f.started, f.mark = true, u.Mark
	return u, nil
}

// until polls, as often as it is told to, until done accepts an update. Where nothing is announced a wake would be
// waited for, and the writers of these tests send none: it looks again soon.
func (f *follower) until(t *testing.T, what string, done func(u engine.TailUpdate) bool) engine.TailUpdate {
	t.Helper()
	ctx, cancel := context.WithTimeout(testContext(t), hangs)
	defer cancel()
	for {
		u, err := f.poll(ctx)
		if err != nil {
			t.Fatalf("until %s: %v", what, err)
		}
		if done(u) {
			return u
		}
		if !u.More {
			pause(ctx, max(u.Again, time.Millisecond))
		}
		if ctx.Err() != nil {
			t.Fatalf("never: %s; last %+v", what, u)
		}
	}
}

func (f *follower) untilMark(t *testing.T, mark int64) {
	t.Helper()
	f.until(t, fmt.Sprintf("the mark is %d", mark), func(u engine.TailUpdate) bool { return u.Mark >= mark })
	if f.mark != mark {
		t.Fatalf("the mark is %d, beyond %d", f.mark, mark)
	}
}

// untilHeld polls until the mark is held, and then some more: it must stay.
func (f *follower) untilHeld(t *testing.T, mark int64) engine.Held {
	t.Helper()
	holders := func(u engine.TailUpdate) bool { return u.Held != nil }
	held := f.until(t, "the mark is held", holders)
	for range 3 {
		held = f.until(t, "the mark is held still", holders)
	}
	if held.Mark != mark {
		t.Fatalf("the mark is held at %d instead of %d", held.Mark, mark)
	}
	return *held.Held
}

// got takes what was delivered since the last call.
func (f *follower) got(t *testing.T, want ...int64) {
	t.Helper()
	if !slices.Equal(f.positions, want) {
		t.Errorf("delivered %v, want %v", f.positions, want)
	}
	f.positions = nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// openTx is a transaction that stays open. It is rolled back at the end of the test.
func openTx(t *testing.T, store *Store) pgx.Tx {
	t.Helper()
	tx := must(store.pool.Begin(testContext(t)))(t)
	t.Cleanup(func() { _ = tx.Rollback(testContext(t)) })
	return tx
}

// appendIn appends n events in a transaction and returns their positions.
func appendIn(t *testing.T, tx pgx.Tx, tenant *Tenant, stream string, n int) []int64 {
	t.Helper()
	result, _, err := tenant.AppendTx(testContext(t), tx, stream, event.Any, someEvents(n)...)
	if err != nil {
		t.Fatal(err)
	}
	return result.Positions
}

func execIn(t *testing.T, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	if _, err := tx.Exec(testContext(t), sql, append([]any{pgx.QueryExecModeExec}, args...)...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	noError(t, tx.Commit(testContext(t)))
}

func rollback(t *testing.T, tx pgx.Tx) {
	t.Helper()
	noError(t, tx.Rollback(testContext(t)))
}

func backend(tx pgx.Tx) string { return fmt.Sprintf("backend %d", tx.Conn().PgConn().PID()) }
