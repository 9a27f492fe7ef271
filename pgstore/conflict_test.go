package pgstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

func TestDeadlockNamesTheProcessesInAnyLanguage(t *testing.T) {
	t.Parallel()
	for _, detail := range []string{
		"Process 11 waits for ShareLock on transaction 456; blocked by process 22.\nProcess 22 waits for ShareLock on transaction 457; blocked by process 11.",
		"Prozess 11 wartet auf ShareLock-Sperre auf Transaktion 456; blockiert von Prozess 22.\nProzess 22 wartet auf ShareLock-Sperre auf Transaktion 457; blockiert von Prozess 11.",
	} {
		if pids := deadlocked(detail); !slices.Equal(pids, []int32{22, 11}) {
			t.Errorf("%s: %v", detail, pids)
		}
	}
	if pids := deadlocked("see the log\n99999999999"); len(pids) != 0 {
		t.Errorf("no process: %v", pids)
	}
}

func TestDeadlockOfTwoBatchesNamesTheOtherProjection(t *testing.T) {
	t.Parallel()
	store := modelStore(t)
	mustExec(t, store,
		"create table public.pair (id int primary key, n int); insert into public.pair values (0, 0), (1, 0)")
	owners := owning(t, store, "p", "q")
	var both [2]chan struct{}
	for i := range both {
		both[i] = make(chan struct{})
	}
	var errs [2]error
	_ = together(2, func(i int) error {
		errs[i] = owners[i].apply(func(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
			if _, err := tx.Exec(ctx, "update public.pair set n = n + 1 where id = $1", i); err != nil {
				return err
			}
			close(both[i])
			<-both[1-i]
			if _, err := tx.Exec(ctx, "update public.pair set n = n + 1 where id = $1", 1-i); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "select pg_sleep(0.2)") // the winner still runs when the other one is rolled back
			return err
		}, engine.ApplyOptions{Timeout: time.Minute})
		return nil
	})
	victim := 0
	if errs[0] == nil {
		victim = 1
	}
	var fault *faults.Fault
	if errs[1-victim] != nil || !errors.As(errs[victim], &fault) {
		t.Fatal(errs)
	}
	if other := owners[1-victim].lease; !fault.Conflict || len(fault.Rivals) != 1 ||
		fault.Rivals[0] != (faults.Rival{ID: other.ID, Row: other.Row}) {
		t.Errorf("%+v, want %v", fault, other.ID)
	}
}

// Of two batches that deadlock, one goes on. A batch that waits for it is sent back, also if it was in no deadlock
// itself.
func TestBatchThatWaitsBehindADeadlockIsSentBack(t *testing.T) {
	t.Parallel()
	store := modelStore(t)
	mustExec(t, store,
		"create table public.cells (id int primary key, n int); insert into public.cells select g, 0 from generate_series(0, 3) g")
	owners := owning(t, store, "p", "q", "waits for p", "waits for q")
	write := func(ctx context.Context, tx pgx.Tx, id int) error {
		_, err := tx.Exec(ctx, "update public.cells set n = n + 1 where id = $1", id)
		return err
	}
	var held sync.WaitGroup
	held.Add(2)
	var errs [4]error
	_ = together(4, func(i int) error {
		errs[i] = owners[i].apply(func(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
			if i >= 2 {
				held.Wait()
				return write(ctx, tx, i)
			}
			if err := errors.Join(write(ctx, tx, i), write(ctx, tx, i+2)); err != nil {
				return err
			}
			held.Done()
			held.Wait()
			if err := write(ctx, tx, 1-i); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "select pg_sleep(0.5)") // the winner still runs when the others are sent back
			return err
		}, engine.ApplyOptions{Timeout: time.Minute})
		return nil
	})
	winner := 0
	if errs[0] != nil {
		winner = 1
	}
	if errs[winner] != nil || errs[1-winner] == nil || errs[2+1-winner] != nil {
		t.Fatal(errs)
	}
	var fault *faults.Fault
	if err := errs[2+winner]; !errors.As(err, &fault) || !fault.Conflict || !pgerr.Is(err, pgerr.QueryCanceled) {
		t.Fatalf("not sent back: %v", err)
	}
	for _, o := range owners[:2] {
		if !slices.Contains(fault.Rivals, faults.Rival{ID: o.lease.ID, Row: o.lease.Row}) {
			t.Errorf("%s is not kept apart from %s: %v", owners[2+winner].lease.ID, o.lease.ID, fault.Rivals)
		}
	}
	if err := owners[2+winner].apply(func(ctx context.Context, tx pgx.Tx,
		_ []event.Envelope) error {
		return write(ctx, tx, 2)
	}, engine.ApplyOptions{Timeout: time.Minute}); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
}

func TestBatchTakesTheLocksThatKeepItApartInOneOrder(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	b := beginsUnder(store, engine.Lease{Row: 5}, batchOptions{timeout: time.Minute})
	b.apart = []int32{3, 9}
	if text := b.setUpSQL(b.beginWait(), ""); !strings.HasPrefix(text, store.server.unbounded+
		"set local lock_timeout = 10000;") || !strings.HasSuffix(text, "; set local lock_timeout = 30000") {
		t.Errorf("the wait for three locks is not half of the timeout in all: %s", text)
	}
	var sql strings.Builder
	b.announce(&sql)
	if parts := strings.Split(sql.String(), ", "); len(parts) != 7 ||
		!strings.HasPrefix(parts[0], "pg_advisory_xact_lock(") || parts[1] != "3)" ||
		!strings.HasPrefix(parts[2], "pg_advisory_xact_lock_shared(") || parts[3] != "5)" ||
		!strings.HasPrefix(parts[4], "pg_advisory_xact_lock(") || parts[5] != "9)" {
		t.Error(sql.String())
	}
}

// A batch that waits too long for a batch from which it is kept apart is a conflict, also for the side that was never a
// victim.
func TestBeginThatWaitsForAnotherBatchIsAConflict(t *testing.T) {
	t.Parallel()
	store := modelStore(t)
	owners := owning(t, store, "p", "q")
	runs := func(i int, h batchFunc, timeout time.Duration, apart ...int32) error {
		events, err := owners[i].pending()
		noError(t, err)
		batch := engine.Batch{Events: events, To: events[len(events)-1].Position, Apart: apart}
		return store.port().apply(h, engine.ApplyOptions{Timeout: timeout})(testContext(t), owners[i].lease, batch)
	}
	called := func(context.Context, pgx.Tx, []event.Envelope) error {
		t.Error("the handler was called")
		return nil
	}
	rolledBack := errors.New("on purpose")
	for keeps, o := range owners {
		var apart [2][]int32
		apart[keeps] = []int32{owners[1-keeps].lease.Row}
		err := runs(0, func(context.Context, pgx.Tx, []event.Envelope) error {
			err := runs(1, called, time.Second, apart[1]...)
			var fault *faults.Fault
			if !errors.As(err, &fault) || fault.Class != faults.Infrastructure || !fault.Conflict || !fault.Blocked {
				t.Errorf("%s keeps apart: %v, %+v", o.lease.ID, err, fault)
			}
			return rolledBack
		}, time.Minute, apart[0]...)
		if !errors.Is(err, rolledBack) {
			t.Error(err)
		}
	}
}

// A hook is no batch: nothing is sent back after its deadlock.
func TestHookThatDeadlocksEndsAlone(t *testing.T) {
	t.Parallel()
	store := modelStore(t)
	mustExec(t, store,
		"create table public.pair (id int primary key, n int); insert into public.pair values (0, 0), (1, 0)")
	other := openTx(t, store)
	execIn(t, other, "set local deadlock_timeout = '1min'") // so the server ends the hook's transaction
	execIn(t, other, "update public.pair set n = n + 1 where id = 1")
	waits := make(chan error, 1)
	hook := handler.NewHook(func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "update public.pair set n = n + 1 where id = 0"); err != nil {
			return err
		}
		go func() {
			waitBlocked(t, store, 1)
			_, err := other.Exec(testContext(t), "update public.pair set n = n + 1 where id = 0")
			waits <- err
		}()
		_, err := tx.Exec(ctx, "update public.pair set n = n + 1 where id = 1")
		return err
	})
	later := engine.NewProjection{
		Tenant: projection.DefaultTenant, Name: "p@2", Partitions: 1, Swap: hook, Timeout: time.Minute,
	}
	_, err := store.plane().Ensure(testContext(t), []engine.NewProjection{later})
	var failed *engine.SwapError
	if !errors.As(err, &failed) || !pgerr.Is(failed.Tenants[projection.DefaultTenant].Err, pgerr.Deadlock) {
		t.Errorf("the hook: %v", err)
	}
	noError(t, <-waits)
}
