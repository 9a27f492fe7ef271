package pgstore

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

func setCheckpoint(t *testing.T, store *Store, tenant string, checkpoint int64) {
	t.Helper()
	noError(t, store.port().Ensure(testContext(t), []string{tenant}, []string{"p"}))
	mustExec(t, store, `update millrace.leases set checkpoint = $2 where id =
		(select id from millrace.projections where tenant = $1)`, tenant, checkpoint)
}

func TestRestoredTenantIsRefused(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	other := newTenant(t, store, "other")
	for _, tenant := range []*Tenant{store.tenant, other} {
		mustAppend(t, tenant, "a", event.Any, someEvents(5)...)
		setCheckpoint(t, store, tenant.Name(), 5)
		follow(t, store, tenant.Name())
	}
	mustExec(t, store, "delete from millrace_default.events where global_seq = 5")
	tail := store.port().Tail(projection.DefaultTenant)
	for range 2 {
		_, err := tail.Poll(testContext(t))
		if fault := store.port().Classify(err); !errors.Is(err, projection.ErrRestored) || fault.Class != engine.Configuration {
			t.Errorf("%v", err)
		}
	}
	follow(t, store, other.Name())
	// With the checkpoint set back it goes on.
	setCheckpoint(t, store, projection.DefaultTenant, 4)
	f := follow(t, store, projection.DefaultTenant)
	if f.mark != 4 {
		t.Errorf("the mark is %d", f.mark)
	}
}

func TestTailOfAnUnknownTenantSaysSo(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	for _, tenant := range []string{"nobody", ""} {
		if _, err := store.port().Tail(tenant).Poll(testContext(t)); err == nil {
			t.Errorf("tenant %q has a tail", tenant)
		} else if tenant != "" && store.port().Classify(err).Class != engine.Configuration {
			t.Errorf("%v is not a fault of the configuration", err)
		}
	}
}

// dropTenant drops a tenant with all it has.
func dropTenant(t *testing.T, store *Store, tenant *Tenant) {
	t.Helper()
	mustExec(t, store, "drop schema "+sqltext.Name(tenant.EventsSchema())+" cascade")
	mustExec(t, store, "delete from millrace.tenants where tenant = $1", tenant.Name())
}

// The events table is another one after that, under the same name, and who appends to it is found there.
func TestReplacedEventsAreFoundByTheirName(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	tenant := newTenant(t, store, "again")
	f := follow(t, store, tenant.Name())
	held := func() pgx.Tx {
		tx := openTx(t, store)
		first := appendIn(t, tx, tenant, "held", 1)[0]
		mustAppend(t, tenant, "a", event.Any, someEvents(1)...)
		if by := f.untilHeld(t, first-1); !slices.Equal(by.Holders, []string{backend(tx)}) {
			t.Errorf("%+v", by)
		}
		return tx
	}
	rollback(t, held())
	f.untilMark(t, 2)
	dropTenant(t, store, tenant)
	if _, err := f.poll(testContext(t)); err == nil || store.port().Classify(err).Class != engine.Configuration {
		t.Errorf("without the table: %v", err)
	}
	newTenant(t, store, tenant.Name())
	f = &follower{tail: f.tail}
	if u, err := f.poll(testContext(t)); err != nil || u.Mark != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	commit(t, held())
	f.untilMark(t, 2)
	f.got(t, 1, 2)

	// Nobody looked while it was replaced.
	dropTenant(t, store, tenant)
	newTenant(t, store, tenant.Name())
	mustAppend(t, tenant, "a", event.Any, someEvents(2)...)
	commit(t, held())
	f.untilMark(t, 4)
	f.got(t, 3, 4)
}
