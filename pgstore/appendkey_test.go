package pgstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
)

func TestRepeatReturnsTheFirstResult(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(2)...)
	first := mustAppend(t, store.tenant, "s", event.Exact(2).WithKey("k"), someEvents(3)...)
	mustAppend(t, store.tenant, "other", event.Any, someEvents(1)...)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	drawn := lastDrawn(t, store.tenant)
	want := first
	want.Repeated = true
	// The stream has moved on: the repeat wins over the conflict, and over whatever else is asked for.
	for _, expected := range []event.Expected{event.Exact(2), event.Any, event.NoStream} {
		if got := mustAppend(t, store.tenant, "s", expected.WithKey("k"), someEvents(3)...); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %+v, want %+v", expected, got, want)
		}
	}
	if now := lastDrawn(t, store.tenant); now != drawn {
		t.Errorf("repeats drew positions %d to %d", drawn+1, now)
	}
}

func TestKeyBelongsToOneStream(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any.WithKey("k"), someEvents(1)...)
	_, err := store.Append(testContext(t), "other", event.Any.WithKey("k"), someEvents(1)...)
	if !errors.Is(err, event.ErrKeyReused) || !strings.Contains(err.Error(), `key "k" was used for stream "s"`) {
		t.Errorf("error %v", err)
	}
	if n := countEvents(t, store.tenant); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestKeyOfAnAppendThatFailedCanBeUsed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if _, err := store.Append(testContext(t), "s", event.NoStream.WithKey("k"), someEvents(1)...); !errors.Is(err, event.ErrVersionConflict) {
		t.Fatal(err)
	}
	if got := mustAppend(t, store.tenant, "s", event.Exact(1).WithKey("k"), someEvents(1)...); got.Repeated || got.Version != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestConcurrentRepeatsAppendOnce(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	const callers, keys, events = 8, 20, 100
	for k := range keys {
		var appended atomic.Int32
		results := make([]event.Appended, callers)
		err := together(callers, func(i int) error {
			// Half of them expect a version that is true only for the first.
			expected := []event.Expected{event.Any, event.Exact(int64(k * events))}[i%2]
			result, err := store.Append(ctx, "s", expected.WithKey(fmt.Sprint(k)), someEvents(events)...)
			if !result.Repeated {
				appended.Add(1)
			}
			result.Repeated = false
			results[i] = result
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if appended.Load() != 1 {
			t.Fatalf("key %d: %d callers appended", k, appended.Load())
		}
		for _, r := range results {
			if len(r.Positions) != events || !reflect.DeepEqual(r, results[0]) {
				t.Fatalf("key %d: results %+v and %+v", k, r, results[0])
			}
		}
	}
	if n := countEvents(t, store.tenant); n != keys*events {
		t.Errorf("%d events, want %d", n, keys*events)
	}
	if drawn := lastDrawn(t, store.tenant); drawn != keys*events {
		t.Errorf("%d positions were drawn for %d events", drawn, keys*events)
	}
}

func TestWaitingRepeatAppendsWhereTheFirstRollsBack(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{false, true} {
		t.Run(fmt.Sprintf("commit %v", commit), func(t *testing.T) {
			store := newStore(t)
			ctx := testContext(t)
			tx := must(store.pool.Begin(ctx))(t)
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
			if _, _, err := store.AppendTx(ctx, tx, "s", event.NoStream.WithKey("k"), someEvents(2)...); err != nil {
				t.Fatal(err)
			}
			waiting := make(chan event.Appended, 1)
			failed := make(chan error, 1)
			go func() {
				result, err := store.Append(ctx, "s", event.NoStream.WithKey("k"), someEvents(2)...)
				failed <- err
				waiting <- result
			}()
			waitBlocked(t, store, 1)
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			noError(t, end(ctx))
			noError(t, <-failed)
			if got := <-waiting; got.Repeated != commit || got.Version != 2 || len(got.Positions) != 2 {
				t.Errorf("got %+v", got)
			}
			if n := countEvents(t, store.tenant); n != 2 {
				t.Errorf("%d events", n)
			}
		})
	}
}

func TestKeyedConflictAndRepeatLeaveTheCallersTransactionUsable(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	first := mustAppend(t, store.tenant, "s", event.Any.WithKey("used"), someEvents(2)...)
	err := store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "create table before (n int)"); err != nil {
			return err
		}
		_, wake, err := store.AppendTx(ctx, tx, "s", event.NoStream.WithKey("new"), someEvents(1)...)
		if !errors.Is(err, event.ErrVersionConflict) || wake == nil {
			t.Errorf("error %v", err)
		}
		again, _, err := store.AppendTx(ctx, tx, "s", event.NoStream.WithKey("used"), someEvents(2)...)
		if err != nil || !again.Repeated || !reflect.DeepEqual(again.Positions, first.Positions) {
			t.Errorf("repeat: %+v, %v", again, err)
		}
		now, _, err := store.AppendTx(ctx, tx, "s", event.Exact(2).WithKey("new"), someEvents(1)...)
		if err != nil || now.Version != 3 || now.Repeated {
			t.Errorf("append under the key of the conflict: %+v, %v", now, err)
		}
		same, _, err := store.AppendTx(ctx, tx, "s", event.Any.WithKey("new"), someEvents(1)...)
		if err != nil || !same.Repeated || same.Version != 3 {
			t.Errorf("repeat within one transaction: %+v, %v", same, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := countEvents(t, store.tenant); n != 3 {
		t.Errorf("%d events", n)
	}
	if n := one[int](t, store, "select count(*) from before"); n != 0 {
		t.Errorf("%d rows", n)
	}
}
