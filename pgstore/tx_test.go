package pgstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

var errStop = errors.New("stop")

// A transaction of package control runs again if its session lost its prepared statements.
func TestControlTransactionIsRepeatedAfterDeallocate(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 3)
	d.store = openStore(t, d.store.pool.Config().ConnString(), Options{}, connections(1))
	d.park(d.at["a"][0], false)
	d.park(d.at["b"][0], false)
	command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
	first := d.begin(command, 0)
	d.must(d.plane().FailReplay(testContext(t), d.lease, failedReplay(*first, errBad, "")))
	mustExec(t, d.store, "deallocate all")
	second := d.begin(command, 0)
	if second == nil || second.Position == first.Position || second.Begun != 1 {
		t.Errorf("begun %+v", second)
	}
	mustExec(t, d.store, "deallocate all")
	d.must(d.plane().FailReplay(testContext(t), d.lease, failedReplay(*second, errBad, "")))
	if l := d.one(second.Position); l.Replays != 1 {
		t.Errorf("%+v", l)
	}
}

// If a statement that must change a row changes none, nothing of its transaction stays, and the connection is used
// again.
func TestControlTransactionIsRolledBack(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	d.store = openStore(t, d.store.pool.Config().ConnString(), Options{}, connections(1))
	pid := one[int](t, d.store, "select pg_backend_pid()")
	c := d.store.port()
	before := d.state()
	for name, fn := range map[string]func(tx store.Tx) error{
		"must": func(tx store.Tx) error {
			tx.Exec("halt", d.lease.Row, "bad")
			tx.Must(errStop, "end_operation", 0, 0, nil, nil)
			return nil
		},
		"a fault": func(tx store.Tx) error {
			tx.Exec("halt", d.lease.Row, "bad")
			tx.Exec("insert_command", nil, []int32{d.lease.Row}, "no such kind", nil, nil, nil, nil, 1)
			return nil
		},
		"the function": func(tx store.Tx) error {
			tx.Exec("halt", d.lease.Row, "bad")
			_, err := tx.One("check_operation", []any{0, 0}, new(int64))
			return errors.Join(err, errStop)
		},
		"a use while rows are read": func(tx store.Tx) error {
			var row int32
			return tx.Each("letter_projections", []any{"default", "p", 0}, []any{&row}, func() error {
				tx.Exec("halt", row, "bad")
				return nil
			})
		},
	} {
		if err := c.Fenced(testContext(t), d.lease, fn); err == nil || d.state() != before {
			t.Errorf("%s: %v, and it is\n%s", name, err, d.state())
		}
	}
	lost := d.lease
	lost.Epoch++
	if err := c.Fenced(testContext(t), lost,
		func(store.Tx) error { t.Error("it runs"); return nil }); !errors.Is(storeFault(err), projection.ErrLeaseLost) {
		t.Errorf("a lost lease: %v", err)
	}
	if now := one[int](t, d.store, "select pg_backend_pid()"); now != pid {
		t.Error("the connection was closed")
	}
}

// A transaction under a lease locks it in its last message: until then another node claims it at once, and the
// transaction fails.
func TestLeaseThatIsClaimedDuringATransactionIsLost(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	ctx := testContext(t)
	err := o.store.port().Fenced(ctx, o.lease, func(tx store.Tx) error {
		if _, err := tx.One("next_command", []any{o.lease.Row, false}, new(int64), new(bool), new(int64),
			new(bool)); err != nil {
			return err
		}
		if claimed, err := claimNow(ctx, o); err != nil || len(claimed) != 1 {
			t.Errorf("claimed %+v, %v", claimed, err)
		}
		tx.Exec("halt", o.lease.Row, "bad")
		return nil
	})
	if !errors.Is(storeFault(err), projection.ErrLeaseLost) ||
		one[bool](t, o.store, "select halted from millrace.projections") {
		t.Errorf("%v, and it was halted", err)
	}
}

// The last message waits for a claim in progress: the next owner might have read what the transaction changes.
func TestTransactionUnderALeaseWaitsForAClaimInProgress(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	ctx := testContext(t)
	ended := make(chan error, 1)
	noError(t, pgx.BeginFunc(ctx, o.store.pool, func(claim pgx.Tx) error {
		if _, err := claim.Exec(ctx, "update millrace.leases set epoch = epoch + 1 where id = $1",
			o.lease.Row); err != nil {
			return err
		}
		go func() { ended <- o.store.plane().Halt(ctx, o.lease, "bad") }()
		waitBlocked(t, o.store, 1)
		return nil
	}))
	if err := <-ended; !errors.Is(err, projection.ErrLeaseLost) ||
		one[bool](t, o.store, "select halted from millrace.projections") {
		t.Errorf("%v, and it was halted", err)
	}
}

// Two transactions that lock rows in different orders both commit: the server ends one of them, and it runs again.
func TestControlTransactionIsRepeatedAfterADeadlock(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	ctx := testContext(t)
	commands := []int64{
		d.give("replay", projection.DeadLetterFilter{All: true}, 10),
		d.give("discard", projection.DeadLetterFilter{All: true}, 10),
	}
	var tries atomic.Int32
	var both sync.WaitGroup // both hold their first rows
	both.Add(2)
	noError(t, together(2, func(i int) error {
		first := sync.OnceFunc(both.Done)
		return d.store.port().Tx(ctx, func(tx store.Tx) error {
			tries.Add(1)
			if _, err := tx.One("end_discard", []any{commands[i], int64(i)}); err != nil {
				return err
			}
			first()
			both.Wait()
			tx.Exec("end_discard", commands[1-i], int64(i))
			return nil
		})
	}))
	// The transaction that began anew may lock its first row before the other one wakes up, and meet it again.
	if n := tries.Load(); n < 3 {
		t.Errorf("%d tries, want more than transactions", n)
	}
}

// A caller's own transaction carries statements of package control, which commit or roll back with it.
func TestControlStatementsInATransactionOfTheUser(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	ctx := testContext(t)
	for _, commit := range []bool{false, true} {
		err := pgx.BeginFunc(ctx, d.store.pool, func(tx pgx.Tx) error {
			err := d.store.on(ctx, tx).run(func(tx store.Tx) error {
				tx.Exec("halt", d.lease.Row, "bad")
				return nil
			})
			if err == nil && !commit {
				err = errStop
			}
			return err
		})
		if halted := one[bool](t, d.store, "select halted from millrace.projections"); halted != commit ||
			(err == nil) != commit {
			t.Errorf("commit %v: halted %v, %v", commit, halted, err)
		}
	}
}

// Flows of package control work in every mode of the driver that stores accept.
func TestControlWorksInEveryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			d := newDrawer(t, 3)
			other, err := openPool(t, d.store.pool.Config().ConnString(), mode)
			if err != nil {
				t.Fatal(err)
			}
			d.store = other
			a, b := d.at["a"], d.at["b"]
			d.park(a[0], true)
			d.park(b[0], false)
			first := d.one(a[0])
			command := d.give("replay", projection.DeadLetterFilter{IDs: []int64{first.ID, d.one(b[0]).ID},
				Error: "bad"}, 10)
			r := d.begin(command, 0)
			if r == nil || r.Position != a[0] {
				t.Fatalf("begun %+v", r)
			}
			d.must(d.plane().FailReplay(testContext(t), d.lease, failedReplay(*r, errBad, "")))
			d.must(d.plane().SkipReplay(testContext(t), d.lease, failedReplay(*d.begin(command, 0), errBad, "")))
			if r := d.begin(command, 0); r != nil {
				t.Errorf("there is more to replay: %+v", r)
			}
			if n, err := d.plane().Discard(testContext(t), d.lease,
				d.give("discard", projection.DeadLetterFilter{All: true}, 10)); n != 1 || err != nil {
				t.Errorf("discarded %d, %v", n, err)
			}
			d.mustHave(nil)
			policy := projection.ReplayPolicy{Interval: time.Hour, MaxReplays: -1, Factor: 2, Cap: 100 * time.Hour}
			if scheduled, next, err := d.plane().ScheduleReplay(testContext(t), d.lease, policy, false); scheduled ||
				next != 0 || err != nil {
				t.Errorf("scheduled %v, %v, %v", scheduled, next, err)
			}
			number, err := d.plane().InsertOperation(testContext(t),
				engine.NewOperation{ID: d.lease.ID, Kind: engine.OperationDrop, Holds: []string{"p"}})
			noError(t, err)
			o, err := d.plane().Operation(testContext(t), number)
			if err != nil || !slices.Equal(o.Holds, []string{"p"}) || o.RequestedAt.IsZero() || !o.EndedAt.IsZero() {
				t.Errorf("%+v, %v", o, err)
			}
			if _, err := d.plane().Hold(testContext(t), o, o.Holds); err != nil {
				t.Error(err)
			}
			noError(t, d.plane().CancelOperation(testContext(t), d.lease.ID))
			d.keepsOperationsForADay()
		})
	}
}

// keepsOperationsForADay checks that a new operation deletes those that ended longer than a day ago, and no others.
func (d *drawer) keepsOperationsForADay() {
	d.t.Helper()
	for _, c := range []struct{ hours, left int }{{23, 2}, {2, 2}, {25, 1}} {
		mustExec(d.t, d.store, "update millrace.operations set ended_at = ended_at - make_interval(hours => $1)",
			c.hours)
		must(d.plane().InsertOperation(testContext(d.t),
			engine.NewOperation{ID: d.lease.ID, Kind: engine.OperationDrop, Holds: []string{"p"}}))(d.t)
		if left := one[int](d.t, d.store, "select count(*) from millrace.operations"); left != c.left {
			d.t.Errorf("%d hours later there are %d operations, want %d", c.hours, left, c.left)
		}
		noError(d.t, d.plane().CancelOperation(testContext(d.t), d.lease.ID))
	}
}

// A flow with the context of a transaction of the store would commit without it, and is refused.
func TestControlTransactionIsRefusedWithinATransaction(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	noError(t, d.store.InTx(testContext(t), func(ctx context.Context, _ pgx.Tx) error {
		c, nothing := d.store.port(), func(store.Tx) error { return nil }
		for name, err := range map[string]error{"Tx": c.Tx(ctx, nothing), "Fenced": c.Fenced(ctx, d.lease, nothing)} {
			if !errors.Is(err, ErrWithinTx) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	}))
}

// The error of a statement is in the text once.
func TestErrorOfAControlTransactionIsShownOnce(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	err := d.store.port().Tx(testContext(t), func(tx store.Tx) error {
		tx.Exec("halt", d.lease.Row, "bad")
		tx.Exec("insert_command", nil, []int32{d.lease.Row}, "no such kind", nil, nil, nil, nil, 1)
		return nil
	})
	if err == nil || strings.Count(err.Error(), "SQLSTATE") != 1 {
		t.Errorf("%v", err)
	}
}

// An operation that ends while Hold runs holds nothing: nothing would let the projections run again.
func TestOperationThatEndsDuringHoldHoldsNothing(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	ctx, plane := testContext(t), o.store.plane()
	number, err := plane.InsertOperation(ctx, engine.NewOperation{ID: o.lease.ID,
		Kind: engine.OperationDrop, Holds: []string{o.lease.ID.Name}})
	noError(t, err)
	op, err := plane.Operation(ctx, number)
	noError(t, err)
	held, ended := make(chan error, 1), make(chan error, 1)
	noError(t, pgx.BeginFunc(ctx, o.store.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select from millrace.projections where id = $1 for update",
			o.lease.Row); err != nil {
			return err
		}
		go func() {
			_, err := plane.Hold(ctx, op, op.Holds)
			held <- err
		}()
		waitBlocked(t, o.store, 1)
		go func() { ended <- plane.FailOperation(ctx, op, errBad) }()
		select {
		case err := <-ended:
			ended <- err
		case <-time.After(time.Second):
		}
		return nil
	}))
	noError(t, errors.Join(<-held, <-ended))
	if by := one[int64](t, o.store, "select coalesce(held_by, 0) from millrace.projections"); by != 0 {
		t.Errorf("operation %d ended, and holds the projection", by)
	}
}

// The style in which a session writes intervals does not matter.
func TestControlReadsIntervalsInEveryStyle(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	d.park(d.at["a"][0], false)
	url := d.store.pool.Config().ConnString()
	for _, style := range []string{"iso_8601", "sql_standard", "postgres_verbose"} {
		d.store = openStore(t, url, Options{}, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			c.ConnConfig.RuntimeParams["intervalstyle"] = style
		})
		policy := projection.ReplayPolicy{Interval: time.Hour, MaxReplays: -1, Factor: 2, Cap: 100 * time.Hour}
		if scheduled, next, err := d.plane().ScheduleReplay(testContext(t), d.lease, policy, false); scheduled ||
			next <= 0 || err != nil {
			t.Errorf("%s: scheduled %v, %v, %v", style, scheduled, next, err)
		}
	}
}
