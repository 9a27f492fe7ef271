package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// hangs is a limit for operations that take milliseconds: only a hang exceeds it.
const hangs = 30 * time.Second

// follower follows a tenant's tail as a feed does, without wake-ups, and keeps the updates.
type follower struct {
	tenant    *Tenant // nil: skipped events are not read
	tail      engine.TailPoller
	in        engine.Incarnation
	started   bool
	mark      int64
	positions []int64
	polls     int
}

// followTail begins at the tenant's end.
func followTail(t *testing.T, store *Store, tenant string) *follower {
	t.Helper()
	of := must(store.ForTenant(tenant))(t)
	f := &follower{tenant: of, tail: store.port().TailPoller(tenant)}
	must(f.poll(testContext(t)))(t)
	return f
}

// poll polls once, and checks the invariants of updates.
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
		// When a tail starts again, it skips events that projections then read for themselves.
		page, err := f.tenant.store.events.readPage(ctx, f.tenant.namedTenant,
			engine.ReadRange{After: f.mark, UpTo: u.From, Limit: 1000})
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

// until polls, at the intervals of the updates, until done accepts an update. If an update has no interval, a feed
// would wait for a wake-up. The writers of these tests send none, so until polls again soon.
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
	result, err := tenant.AppendTx(testContext(t), tx, stream, event.Any, someEvents(n)...)
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

// ownServer is a migrated store on a server of the test's own.
func ownServer(t *testing.T, settings map[string]string) (*pgtest.Server, *Store) {
	t.Helper()
	server := pgtest.Private(t, pgtest.Options{Settings: settings})
	return server, migrated(t, openStore(t, server.DSN("postgres"), Options{NoNotify: true}))
}

// prepare appends in a transaction that is then prepared, and returns the positions.
func prepare(t *testing.T, store *Store, gid string, n int) []int64 {
	t.Helper()
	tx := openTx(t, store)
	positions := appendIn(t, tx, store.tenant, gid, n)
	execIn(t, tx, "prepare transaction '"+gid+"'")
	return positions
}

func TestPreparedTransactionIsWaitedFor(t *testing.T) {
	t.Parallel()
	server, store := ownServer(t, map[string]string{"max_prepared_transactions": "10"})
	ensured(t, store, "p")
	again := func(mode string) func(t *testing.T, f *follower) {
		return func(t *testing.T, f *follower) {
			noError(t, server.Restart(testContext(t), mode))
			// The connections are new ones, so that the tail meets no error and keeps what it knows.
			store.pool.Reset()
		}
	}
	for name, meanwhile := range map[string]func(t *testing.T, f *follower){
		"nothing else happens":    func(*testing.T, *follower) {},
		"the server is restarted": again("fast"),
		"the server crashes":      again("immediate"),
		"two restarts": func(t *testing.T, f *follower) {
			again("fast")(t, f)
			f.untilHeld(t, f.mark)
			again("immediate")(t, f)
		},
	} {
		for _, end := range []string{"commit prepared", "rollback prepared"} {
			t.Run(name+", "+end, func(t *testing.T) {
				f := followTail(t, store, projection.DefaultTenant)
				mark := f.mark
				// A tail that begins anew begins at the highest checkpoint.
				mustExec(t, store, "update millrace.leases set checkpoint = $1", mark)
				positions := prepare(t, store, "later", 2)
				visible := mustAppend(t, store.tenant, "now", event.Any, someEvents(1)...).Positions
				held := f.untilHeld(t, mark)
				if len(held.Holders) != 1 || !strings.HasPrefix(held.Holders[0], "prepared transaction ") ||
					held.Below != visible[0] {
					t.Errorf("%+v", held)
				}
				meanwhile(t, f)
				f.untilHeld(t, mark)
				mustExec(t, store, end+" 'later'")
				f.untilMark(t, visible[0])
				if end == "commit prepared" {
					visible = append(positions, visible...)
				}
				f.got(t, visible...)
			})
		}
	}
}

// The holder is noted under the virtual transaction id of its session, and later scans do not find it under that id.
func TestTransactionPreparedDuringTheWaitSurvivesARestart(t *testing.T) {
	t.Parallel()
	server, store := ownServer(t, nil)
	f := followTail(t, store, projection.DefaultTenant)
	tx := openTx(t, store)
	appendIn(t, tx, store.tenant, "a", 1)
	mustAppend(t, store.tenant, "b", event.Any, someEvents(1)...)
	if held := f.untilHeld(t, 0); !slices.Equal(held.Holders, []string{backend(tx)}) {
		t.Errorf("%+v", held)
	}
	execIn(t, tx, "prepare transaction 'a'")
	noError(t, server.Restart(testContext(t), "fast"))
	store.pool.Reset()
	// Others append under names that were in use before the restart.
	mustAppend(t, store.tenant, "b", event.Any, someEvents(1)...)
	if held := f.untilHeld(t, 0); !strings.Contains(held.Holders[0], "-1/") {
		t.Errorf("%+v", held)
	}
	mustExec(t, store, "commit prepared 'a'")
	f.untilMark(t, 3)
	f.got(t, 1, 2, 3)
}

// After an error a tail forgets what it knew, and finds the restored transaction in its next scan.
func TestTailStartsAgainAfterARestart(t *testing.T) {
	t.Parallel()
	server, store := ownServer(t, nil)
	f := followTail(t, store, projection.DefaultTenant)
	prepare(t, store, "a", 1)
	mustAppend(t, store.tenant, "b", event.Any, someEvents(1)...)
	f.untilHeld(t, 0)
	noError(t, server.Kill())
	store.pool.Reset()
	_, err := f.poll(testContext(t))
	if fault := store.port().Classify(err); err == nil || fault.Class != faults.Infrastructure || !fault.Probe {
		t.Fatalf("%v, %+v", err, fault)
	}
	noError(t, server.StartAgain(testContext(t)))
	f.untilHeld(t, 0)
	mustExec(t, store, "commit prepared 'a'")
	f.untilMark(t, 2)
}

// A crash can undo draws of positions that only rolled-back transactions made: the sequence's records were not written
// to disk.
func TestPositionsHandedOutAgainAfterACrashAreNotSkipped(t *testing.T) {
	t.Parallel()
	server, store := ownServer(t, map[string]string{"wal_writer_delay": "10s", "autovacuum": "off"})
	f := followTail(t, store, projection.DefaultTenant)
	var next int64 = 1
	for round, again := 0, 0; again < 2; round++ {
		if round == 6 {
			t.Fatalf("numbers were handed out again in %d of %d crashes: the test shows nothing", again, round)
		}
		next = mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...).Positions[0]
		f.untilMark(t, next)
		f.got(t, next)
		// Nothing that follows the draws writes to disk.
		tx := openTx(t, store)
		appendIn(t, tx, store.tenant, "gone", 1)
		execIn(t, tx, "select nextval('millrace_default.events_global_seq_seq') from generate_series(1, 2000)")
		rollback(t, tx)
		drawn := lastDrawn(t, store.tenant)
		for range 3 {
			must(f.poll(testContext(t)))(t)
		}
		if f.mark != next {
			t.Errorf("the mark is %d, and the last visible position %d", f.mark, next)
		}
		noError(t, server.Kill())
		noError(t, server.StartAgain(testContext(t)))
		store.pool.Reset()
		late := mustAppend(t, store.tenant, "a", event.Any, someEvents(3)...).Positions
		if late[2] <= drawn {
			again++
		}
		t.Logf("drawn up to %d, after the crash handed out from %d on", drawn, late[0])
		f.untilMark(t, late[2])
		f.got(t, late...)
	}
}

func TestStandbyIsRefused(t *testing.T) {
	t.Parallel()
	server, primary := ownServer(t, nil)
	mustAppend(t, primary.tenant, "a", event.Any, someEvents(3)...)
	standby := must(server.Standby(testContext(t), pgtest.StandbyOptions{}))(t)
	defer func() {
		if err := standby.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if store, err := Open(testContext(t), standby.DSN("postgres"), Options{}); !errors.Is(err, event.ErrNotPrimary) {
		if err == nil {
			store.Close()
		}
		t.Errorf("Open: %v", err)
	}
	// The server at an address may become a standby. A store that was opened before that notices when it settles.
	pool := must(pgxpool.New(testContext(t), standby.DSN("postgres")))(t)
	defer pool.Close()
	moved := newEventReads(&database{pool: pool, opts: primary.opts, log: primary.log, control: primary.control}, 0)
	if _, _, err := moved.locks.scan(testContext(t), primary.EventsSchema()); !errors.Is(err, event.ErrNotPrimary) {
		t.Errorf("scan: %v", err)
	}
	tail := moved.TailPoller(primary.tenant.Name())
	for range 2 {
		_, err := tail.Poll(testContext(t))
		if fault := primary.port().Classify(err); !errors.Is(err, event.ErrNotPrimary) ||
			fault.Class != faults.Infrastructure || !fault.Probe {
			t.Errorf("Poll: %v", err)
		}
	}
}
