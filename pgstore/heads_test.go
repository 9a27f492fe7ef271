package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestHeadsAreReadWithoutUnreadableTenants(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	owner := migrated(t, openStore(t, dsn, Options{}))
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("t", i))
		mustAppend(t, newTenant(t, owner, names[i]), "s", event.Any, someEvents(i+1)...)
	}
	role := "reader_" + strings.ReplaceAll(one[string](t, owner, "select current_database()"), "-", "_")
	mustExec(t, owner, "create role "+sqltext.Name(role))
	t.Cleanup(func() {
		_, _ = owner.pool.Exec(context.Background(), "drop owned by "+sqltext.Name(role))
		_, _ = owner.pool.Exec(context.Background(), "drop role "+sqltext.Name(role))
	})
	mustExec(t, owner, "grant usage on schema millrace to "+sqltext.Name(role))
	mustExec(t, owner, "grant select on all tables in schema millrace to "+sqltext.Name(role))
	for _, name := range names {
		mustExec(t, owner, "grant usage on schema "+sqltext.Name("millrace_"+name)+" to "+sqltext.Name(role))
		if name != "t7" {
			mustExec(t, owner, "grant select on "+sqltext.Name("millrace_"+name)+".events to "+sqltext.Name(role))
		}
	}
	mustExec(t, owner, "drop schema millrace_t3 cascade")
	tx := must(owner.pool.Begin(testContext(t)))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, name := range []string{"t5", "t11"} {
		must(tx.Exec(testContext(t), "lock table "+sqltext.Name("millrace_"+name)+
			".events in access exclusive mode"))(t)
	}
	// A session that waits for the lock stops reads too: they queue behind it.
	reader := must(owner.pool.Begin(testContext(t)))(t)
	defer func() { _ = reader.Rollback(context.Background()) }()
	must(reader.Exec(testContext(t), "select from millrace_t13.events"))(t)
	queued := must(owner.pool.Acquire(testContext(t)))(t)
	defer queued.Release()
	waits := make(chan error, 1)
	go func() {
		_, err := queued.Exec(testContext(t), "alter table millrace_t13.events add check (true)")
		waits <- err
	}()
	waitBlocked(t, owner, 1)

	store := openStore(t, dsn, Options{}, func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set role "+sqltext.Name(role))
			return err
		}
	})
	heads := must(store.port().Heads(testContext(t), names))(t)
	for i, name := range names {
		position, read := heads.Positions[name]
		failed := heads.Failed[name]
		switch name {
		case "t3":
			if read || failed != nil {
				t.Errorf("%s: %d, %v; it does not exist", name, position, failed)
			}
		case "t5", "t11", "t13":
			if read || !errors.Is(failed, tenancy.ErrLocked) || !strings.Contains(failed.Error(), "backend ") {
				t.Errorf("%s: %d, %v; it is locked", name, position, failed)
			}
		case "t7":
			if read || !pgerr.Is(failed, "42501") || store.port().Classify(failed).Class != faults.Configuration {
				t.Errorf("%s: %d, %v; it may not be read", name, position, failed)
			}
		default:
			if position != int64(i+1) || failed != nil {
				t.Errorf("%s: %d, %v; want %d", name, position, failed, i+1)
			}
		}
	}
	noError(t, reader.Rollback(testContext(t)))
	noError(t, <-waits)
}

// One scan serves all who asked before it began, and none who asked after.
func TestLockScanBeginsAfterItsCall(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := newTenant(t, store, "other")
	for i := range 20 {
		txs := map[*Tenant]pgx.Tx{store.tenant: openTx(t, store), other: openTx(t, store)}
		noError(t, together(2, func(n int) error {
			tenant := []*Tenant{store.tenant, other}[n]
			ctx, cancel := context.WithTimeout(context.Background(), hangs)
			defer cancel()
			if _, err := tenant.AppendTx(ctx, txs[tenant], "a", event.Any, someEvents(1)...); err != nil {
				return err
			}
			found, _, err := store.events.locks.scan(ctx, tenant.EventsSchema())
			holders := found[tenant.EventsSchema()]
			if err == nil && (len(holders) != 1 || holders[0].String() != backend(txs[tenant])) {
				t.Errorf("round %d: %s is held by %v, and not by %s", i, tenant.Name(), holders, backend(txs[tenant]))
			}
			return err
		}))
		for _, tx := range txs {
			rollback(t, tx)
		}
	}
}

func TestLockScansAreFew(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	begin := time.Now()
	const rounds = 10
	for range rounds {
		if err := together(30, func(int) error {
			_, _, err := store.events.locks.scan(testContext(t), store.EventsSchema())
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if passed := time.Since(begin); passed < (rounds-1)*scanInterval {
		t.Errorf("%d rounds took %v: more than one scan in %v", rounds, passed, scanInterval)
	}
}

func TestCloseEndsLockScans(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]func(store *Store) (resume func()){
		"one that waits for its time": func(store *Store) func() {
			store.events.locks.last = time.Now().Add(time.Hour)
			return func() {}
		},
		"one that waits for a connection": func(store *Store) func() {
			conn := must(store.pool.Acquire(testContext(t)))(t)
			return conn.Release
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := onePool(t)
			resume := delay(store)
			defer resume()
			ctx, cancel := context.WithTimeout(testContext(t), hangs)
			defer cancel()
			var scans []*lockScan
			for range 3 {
				scan, err := store.events.locks.join([]string{store.EventsSchema()})
				if err != nil {
					t.Fatal(err)
				}
				scans = append(scans, scan)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				store.Close()
			}()
			for _, scan := range scans {
				select {
				case <-scan.done:
				case <-ctx.Done():
					t.Fatal("a scan still waits")
				}
				if !errors.Is(scan.err, errClosed) {
					t.Error(scan.err)
				}
			}
			<-ended
			if _, _, err := store.events.locks.scan(ctx, store.EventsSchema()); !errors.Is(err, errClosed) {
				t.Errorf("after that: %v", err)
			}
		})
	}
}

// The planner takes ten times as long for heads that are aggregates or subqueries of their own. The shape of the plan
// shows that.
func TestHeadsOfManyTenantsArePlannedAsOneAppend(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	tenants := []string{projection.DefaultTenant}
	for i := range 20 {
		tenants = append(tenants, newTenant(t, store, fmt.Sprint("t", i)).name)
	}
	plan := explain(t, store, must(store.events.headsStatement(tenants))(t))
	scans, subplans := strings.Count(plan, "Index Only Scan Backward using events_pkey"), strings.Count(plan, "Plan ")
	if scans != len(tenants) || subplans != 0 || !strings.HasPrefix(plan, "Append") {
		t.Errorf("%d scans and %d subplans for %d tenants:\n%s", scans, subplans, len(tenants), plan)
	}
	heads := must(store.port().Heads(testContext(t), tenants))(t)
	for _, name := range tenants {
		if head, found := heads.Positions[name]; !found || head != 0 {
			t.Errorf("the head of %s, which has no events: %d, %v", name, head, found)
		}
	}
}
