package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/partition"
)

func TestKeyedAppendsDeleteExpiredKeys(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	keyed := func(format string, from, to int) {
		for i := from; i < to; i++ {
			mustAppend(t, store.tenant, "s", event.Any.WithKey(fmt.Sprintf(format, i)), someEvents(1)...)
		}
	}
	age := func(by time.Duration) {
		mustExec(t, store, "update millrace_append_keys set created_at = created_at - ?", by.Microseconds())
	}
	count := func() int { return one[int](t, store, "select count(*) from millrace_append_keys") }
	const old = 100
	keyed("old %d", 0, old)
	age(defaultKeyRetention - time.Minute)
	keyed("new %d", 0, old)
	if n := count(); n != 2*old {
		t.Fatalf("keys were deleted before their time: %d are left", n)
	}
	age(time.Hour)
	for i := 0; count() != old+i; i++ {
		if i > 100*expireEvery {
			t.Fatalf("after %d more appends with keys %d are left", i, count())
		}
		keyed("newest %d", i, i+1)
	}
	if got := mustAppend(t, store.tenant, "s", event.Any.WithKey("new 7"), someEvents(1)...); !got.Repeated {
		t.Error("a key that is not old was deleted")
	}
	if got := mustAppend(t, store.tenant, "s", event.Any.WithKey("old 7"), someEvents(1)...); got.Repeated {
		t.Error("a key that was deleted is a repeat")
	}
}

func TestKeysAreKeptForEverIfRequested(t *testing.T) {
	t.Parallel()
	store := migrated(t, openStore(t, newPath(t), Options{KeyRetention: -1, Synchronous: SynchronousNormal}))
	for i := range 10 * expireEvery {
		mustAppend(t, store.tenant, "s", event.Any.WithKey(fmt.Sprint(i)), someEvents(1)...)
		mustExec(t, store, "update millrace_append_keys set created_at = 0")
	}
	if n := one[int](t, store, "select count(*) from millrace_append_keys"); n != 10*expireEvery {
		t.Errorf("%d keys are left", n)
	}
}

func TestMissingHeadersAndIDsAreStoredAsNull(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	full := event.Event{Type: "T", Headers: map[string]string{"h": ""}, CausationID: "c", CorrelationID: "d"}
	mustAppend(t, store.tenant, "s", event.Any, event.Event{Type: "T"}, full)
	nulls := "select count(*) from millrace_events where headers is null and causation_id is null and correlation_id is null"
	if n := one[int](t, store, nulls); n != 1 {
		t.Errorf("%d events without headers and ids, want 1", n)
	}
	if slot := one[int32](t, store,
		"select slot from millrace_events where position = 1"); slot != partition.Slot("s") {
		t.Errorf("slot %d, want %d", slot, partition.Slot("s"))
	}
}

func TestPageEndsAtItsByteLimit(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	large := event.Event{Type: "L", Body: []byte(`"` + strings.Repeat("x", eventlog.PageBytes/4) + `"`)}
	mustAppend(t, store.tenant, "s", event.Any, slices.Repeat([]event.Event{large}, 10)...)
	page := must(store.tenant.allPages(testContext(t), event.ReadOptions{}).Read(0, eventlog.PageEvents))(t)
	if !page.Truncated || len(page.Events) != 4 {
		t.Errorf("the first page has %d events, truncated %v", len(page.Events), page.Truncated)
	}
}

func TestReadThatIsLeftEarlyHoldsNoConnection(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(2*eventlog.PageEvents)...)
	for range store.ReadAll(testContext(t), event.ReadOptions{}) {
		if used := store.DB().Stats().InUse; used != 0 {
			t.Errorf("%d connections are in use", used)
		}
		break
	}
}

func TestPositionsAreNeverReused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := migrated(t, openStore(t, path, Options{}))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(5)...)
	mustExec(t, store, "delete from millrace_events where position > 2")
	if r := mustAppend(t, store.tenant, "s", event.Exact(5), someEvents(1)...); r.Positions[0] != 6 || r.Version != 6 {
		t.Errorf("after a delete: %+v", r)
	}
	mustExec(t, store, "delete from millrace_events")
	store.Close()
	store = openStore(t, path, Options{})
	if r := mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...); r.Positions[0] != 7 || r.Version != 7 {
		t.Errorf("after all events were deleted and the file was opened again: %+v", r)
	}
	// A position that was returned in a transaction that rolled back was never visible.
	boom := errors.New("boom")
	err := store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		_, err := store.AppendTx(ctx, tx, "s", event.Any, someEvents(1)...)
		return errors.Join(err, boom)
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if r := mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...); r.Positions[0] != 8 {
		t.Errorf("after a rollback: %+v", r)
	}
}

func TestTenantsPositionsHaveALimit(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := newTenant(t, store, "other")
	mustAppend(t, other, "s", event.Any, someEvents(1)...)
	mustExec(t, store, "update millrace_tenants set head = ? where name = 'default'", lastPosition-1)
	if _, err := store.Append(testContext(t), "s", event.Any, someEvents(2)...); err == nil ||
		!strings.Contains(err.Error(), "1099511627775 is the last one") {
		t.Errorf("error %v", err)
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if got := positions(all(t, store.tenant)); !slices.Equal(got, []int64{lastPosition}) {
		t.Errorf("positions %v", got)
	}
	if got := positions(all(t, other)); !slices.Equal(got, []int64{1}) {
		t.Errorf("positions of the next tenant %v", got)
	}
}
