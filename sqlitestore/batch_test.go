package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestBatchCommitsReadModelAndCheckpointTogether(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 5)
	noError(t, b.apply(record, limit))
	b.holds(5, 5)
	mustAppend(t, b.store.tenant, "s", event.Any, someEvents(2)...)
	boom := errors.New("boom")
	err := b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		return errors.Join(record(ctx, tx, events), boom)
	}, limit)
	if fault := faultOf(t, err); !errors.Is(err, boom) || fault.Class != faults.Handler || !fault.Returned {
		t.Errorf("%v, %+v", err, fault)
	}
	b.holds(5, 5)
	noError(t, b.apply(record, limit))
	b.holds(7, 7)
}

func TestBatchWithoutItsLeaseCommitsNothing(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(b *batcher){
		"another owner": func(b *batcher) {
			mustExec(b.t, b.store, "update millrace_leases set owner = 'node-2'")
		},
		"another epoch":      func(b *batcher) { mustExec(b.t, b.store, "update millrace_leases set epoch = 4") },
		"another checkpoint": func(b *batcher) { mustExec(b.t, b.store, "update millrace_leases set checkpoint = 1") },
		"no row":             func(b *batcher) { mustExec(b.t, b.store, "delete from millrace_leases") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBatcher(t, 3)
			batch := b.pending(10)
			lose(b)
			called := false
			err := b.run(testContext(t), batch, func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				called = true
				return record(ctx, tx, events)
			}, limit)
			if classify(err).Class != faults.LeaseLost || !errors.Is(err, projection.ErrLeaseLost) {
				t.Errorf("error %v", err)
			}
			if n := one[int](t, b.store, "select count(*) from model"); n != 0 || called {
				t.Errorf("%d rows, called: %t", n, called)
			}
		})
	}
}

// Nothing prevents a handler from changing the tables of the store. Then the advance fails.
func TestBatchThatLosesItsLeaseMeanwhileCommitsNothing(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 3)
	err := b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		_, err := tx.ExecContext(ctx, "update millrace_leases set epoch = 4")
		return errors.Join(err, record(ctx, tx, events))
	}, limit)
	if classify(err).Class != faults.LeaseLost {
		t.Errorf("error %v", err)
	}
	b.holds(0, 0)
}

func TestCrashCountEndsWithACommittedBatch(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 3)
	mustExec(t, b.store, "update millrace_leases set crash_count = 2")
	count := func() int { return one[int](t, b.store, "select crash_count from millrace_leases") }
	noError(t, b.run(testContext(t), engine.Batch{To: 0}, record, limit))
	if count() != 2 {
		t.Errorf("%d after a batch that moved nothing", count())
	}
	noError(t, b.apply(record, limit))
	if count() != 0 {
		t.Errorf("%d after a batch", count())
	}
}

func TestAppendsOfAHandlerWakeAfterTheCommit(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	other := newTenant(t, b.store, "other")
	wakes := wakeCount(t, b.store)
	appends := func(fail error) handlerFunc {
		return func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
			_, err := other.AppendTx(ctx, tx, "s", event.Any, someEvents(2)...)
			if wakes("other") != 0 || len(all(t, other)) != 0 {
				t.Error("visible or woken before the commit")
			}
			for what, err := range map[string]error{
				"Append": func() error {
					_,
						err := b.store.Append(ctx, "s", event.Any, someEvents(1)...)
					return err
				}(),
				"InTx": b.store.InTx(ctx, func(context.Context, *sql.Tx) error { return nil }),
			} {
				if !errors.Is(err, ErrWithinTx) {
					t.Errorf("%s within a handler: %v", what, err)
				}
			}
			return errors.Join(err, fail)
		}
	}
	if err := b.apply(appends(errors.New("no")), limit); err == nil {
		t.Error("no error")
	}
	if wakes("other") != 0 || len(all(t, other)) != 0 {
		t.Errorf("%d wakes, %d events of a batch that failed", wakes("other"), len(all(t, other)))
	}
	noError(t, b.apply(appends(nil), limit))
	if wakes("other") != 1 || len(all(t, other)) != 2 {
		t.Errorf("%d wakes, %d events", wakes("other"), len(all(t, other)))
	}
}

func TestEventsAreParkedAndSkippedWithTheirCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 4)
	ctx := testContext(t)
	first := must(b.store.plane().RecordFailure(ctx, b.lease,
		projection.Failure{Event: event.Envelope{Position: 1}, Attempt: 1, Err: errors.New("bad")}, 0))(t)
	if again := must(b.store.plane().RecordFailure(ctx, b.lease,
		projection.Failure{Event: event.Envelope{Position: 1}, Attempt: 2, Err: errors.New("bad")},
		0))(t); !again.Equal(first) {
		t.Errorf("it failed first at %v, then at %v", first, again)
	}
	noError(t, b.store.plane().BeginAttempt(ctx, b.lease, 1, 3))
	letter := projection.DeadLetter{
		Position: 1, Stream: "s", Version: 1, Type: "T", Error: "bad \x00 event", Stack: "here", Attempts: 3,
	}
	noError(t, b.store.plane().Park(ctx, b.lease, letter, true))
	b.holds(0, 1)
	if err := b.store.plane().Park(ctx, b.lease, letter, true); !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("parked at another checkpoint: %v", err)
	}
	b.lease.Checkpoint = 1
	noError(t, b.store.plane().Skip(ctx, b.lease, 2))
	b.holds(0, 2)
	b.lease.Checkpoint = 2
	blocked := b.pending(10)
	noError(t, b.run(ctx, engine.Batch{BlockedByStream: blocked.Events, To: 4}, record, limit))
	b.holds(0, 4)
	type row struct {
		position                      int64
		blocked                       bool
		state, error                  string
		attempts, parked, skipped, at int
	}
	var rows []row
	for _, position := range []int64{1, 3, 4} {
		var r row
		noError(t, b.store.DB().QueryRowContext(ctx,
			`select d.position, blocked_by_stream, state, error, d.attempts, p.parked, p.skipped, p.failing_position + p.attempts + p.crash_attempts
			from millrace_dead_letters d join millrace_projections p on p.id = d.projection where position = ? and first_failed_at = (case position when 1 then ? else first_failed_at end)`,
			position, first.UnixMicro()).Scan(&r.position, &r.blocked, &r.state, &r.error, &r.attempts, &r.parked,
			&r.skipped, &r.at))
		rows = append(rows, r)
	}
	want := []row{
		{1, false, "parked", "bad � event", 3, 3, 1, 0},
		{3, true, "parked", "parked after an earlier event of its stream", 0, 3, 1, 0},
		{4, true, "parked", "parked after an earlier event of its stream", 0, 3, 1, 0},
	}
	if !slices.Equal(rows, want) {
		t.Errorf("%+v, want %+v", rows, want)
	}
	if n := one[int](t, b.store, "select count(*) from millrace_parked_streams where stream_id = 's'"); n != 1 {
		t.Errorf("%d parked streams", n)
	}
}

func TestWritesOfAProjectionNeedItsLease(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 2)
	mustExec(t, b.store, "update millrace_leases set epoch = 4")
	ctx, p := testContext(t), b.store.port()
	_, recorded := p.store.plane().RecordFailure(ctx, b.lease, projection.Failure{Err: errors.New("bad")}, 0)
	for what, err := range map[string]error{
		"record a failure": recorded, "attempt": p.store.plane().BeginAttempt(ctx, b.lease, 1, 1),
		"park": p.store.plane().Park(ctx, b.lease, projection.DeadLetter{Position: 1}, false),
		"skip": p.store.plane().Skip(ctx, b.lease, 1), "halt": p.store.plane().Halt(ctx, b.lease, "why"),
		"fail": p.store.plane().SetFailed(ctx, b.lease, "why"),
	} {
		if !errors.Is(err, projection.ErrLeaseLost) || classify(err).Class != faults.LeaseLost {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := one[int](t, b.store,
		"select count(*) from millrace_projections where coalesce(failed_reason, last_error, crash_since) is not null or skipped + parked > 0"); n != 0 {
		t.Error("something was written")
	}
}

func TestHaltIsKeptAndAFailureIsNot(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	ctx, p := testContext(t), b.store.port()
	state := func() string {
		return one[string](t, b.store,
			"select coalesce(failed_reason, 'none') || ' ' || halted || ' ' || coalesce(failed_epoch, 0) from millrace_projections")
	}
	noError(t, p.store.plane().SetFailed(ctx, b.lease, "waiting"))
	if state() != "waiting 0 3" {
		t.Error(state())
	}
	noError(t, p.store.plane().SetFailed(ctx, b.lease, ""))
	if state() != "none 0 3" {
		t.Error(state())
	}
	noError(t, p.store.plane().Halt(ctx, b.lease, strings.Repeat("x", 100_000)))
	noError(t, p.store.plane().SetFailed(ctx, b.lease, ""))
	if s := state(); !strings.HasSuffix(s, " 1 3") || !strings.HasPrefix(s, "xxx") || len(s) > 20_000 {
		t.Errorf("%.100s, %d bytes", s, len(s))
	}
}

func TestTailReturnsEveryEventOnceUpToTheHead(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	other := newTenant(t, store, "other")
	mustAppend(t, other, "s", event.Any, someEvents(3)...)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(10)...)
	tail := store.port().TailPoller(projection.DefaultTenant)
	slots := 0
	tail.ReadWithin(func(ctx context.Context) (context.Context, func(), error) {
		slots++
		return ctx, func() { slots-- }, nil
	})
	if u := must(tail.Poll(ctx))(t); u.Mark != 10 || u.From != 10 || len(u.Events) != 0 || u.More || u.Again != 0 ||
		u.Incarnation == 0 {
		t.Errorf("at the start: %+v", u)
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(3000)...)
	var got []int64
	for polls := 0; ; polls++ {
		u := must(tail.Poll(ctx))(t)
		got = append(got, positions(u.Events)...)
		if u.Again != 0 || u.Held != nil || slots != 0 || len(u.Events) > eventlog.TailEvents ||
			u.Mark != got[len(got)-1] || u.From != u.Mark-int64(len(u.Events)) {
			t.Fatalf("%d to %d, %d events", u.From, u.Mark, len(u.Events))
		}
		if !u.More {
			break
		}
	}
	if len(got) != 3000 || got[0] != 11 || got[2999] != 3010 || !slices.IsSorted(got) {
		t.Errorf("%d events", len(got))
	}
	if u := must(tail.Poll(ctx))(t); u.Mark != 3010 || u.From != 3010 || len(u.Events) != 0 || u.More {
		t.Errorf("at the end: %+v", u)
	}
}

func TestTailBelowACheckpointIsNamed(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 10)
	ctx := testContext(t)
	tail := b.store.port().TailPoller(projection.DefaultTenant)
	must(tail.Poll(ctx))(t)
	for name, restore := range map[string]string{
		"checkpoint":                      "update millrace_leases set checkpoint = 8",
		"handled by an earlier partition": `update millrace_projections set passed = '[[0,5,3],[5,9,8]]'`,
	} {
		mustExec(t, b.store, "update millrace_tenants set head = 8 where name = 'default'")
		mustExec(t, b.store, restore)
		if u := must(tail.Poll(ctx))(t); u.Mark != 8 {
			t.Errorf("%s: the mark is %d", name, u.Mark)
		}
		mustExec(t, b.store, "update millrace_tenants set head = 7 where name = 'default'")
		for range 2 {
			if _, err := tail.Poll(ctx); !errors.Is(err, tenancy.ErrRestored) ||
				classify(err).Class != faults.Configuration {
				t.Errorf("%s: %v", name, err)
			}
		}
		mustExec(t, b.store, "update millrace_leases set checkpoint = 0")
		mustExec(t, b.store, "update millrace_projections set passed = '[]'")
	}
	_, err := b.store.port().TailPoller("nobody").Poll(ctx)
	if !errors.Is(err, tenancy.ErrUnknown) || classify(err).Class != faults.Configuration {
		t.Errorf("unknown tenant: %v", err)
	}
	if err := b.store.port().Absent(ctx, "nobody"); !errors.Is(err, tenancy.ErrUnknown) {
		t.Errorf("unknown tenant: %v", err)
	}
	noError(t, b.store.port().Absent(ctx, projection.DefaultTenant))
}

func TestHeadsOfManyTenantsAreOneStatement(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	names := make([]string, 600)
	for i := range names {
		names[i] = fmt.Sprintf("tenant \"%d\"", i)
	}
	noError(t, store.CreateTenants(testContext(t), names[:500]...))
	mustAppend(t, must(store.ForTenant(names[7]))(t), "s", event.Any, someEvents(3)...)
	heads := must(store.port().Heads(testContext(t), names))(t)
	if len(heads.Positions) != 500 || heads.Positions[names[7]] != 3 || heads.Positions[names[8]] != 0 ||
		len(heads.Failed) != 0 || heads.Incarnation == 0 {
		t.Errorf("%d heads, %v", len(heads.Positions), heads.Failed)
	}
	noError(t, store.port().Ping(testContext(t)))
}
