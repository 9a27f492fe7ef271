package pgstore

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// standing is a batch whose handler waits, with a row of the read model locked.
type standing struct {
	*owner
	pid int32
	// goOn lets the handler return; done has the result of the batch.
	goOn func()
	done chan error
}

// stand begins a batch over the first pending event that locks a row of the table public.row, which need not exist
// before.
func (o *owner) stand(row int) *standing {
	o.t.Helper()
	mustExec(o.t, o.store, "create table if not exists public.row (id int primary key, n int default 0)")
	mustExec(o.t, o.store, "insert into public.row values ($1)", row)
	events, err := o.pending()
	if err != nil || len(events) == 0 {
		o.t.Fatalf("there is nothing to apply: %v", err)
	}
	inside, released := make(chan struct{}), make(chan struct{})
	s := &standing{owner: o, goOn: sync.OnceFunc(func() { close(released) }), done: make(chan error, 1)}
	handler := writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&s.pid); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "update public.row set n = n + 1 where id = $1", row); err != nil {
			return err
		}
		close(inside)
		<-released
		return nil
	})
	ctx, batch := testContext(o.t), engine.Batch{Events: events[:1], To: events[0].Position}
	var ended sync.WaitGroup
	ended.Go(func() {
		s.done <- o.store.port().apply(handler, engine.ApplyOptions{Timeout: time.Hour})(ctx, o.lease, batch)
	})
	o.t.Cleanup(ended.Wait)
	o.t.Cleanup(s.goOn)
	select {
	case <-inside:
	case err := <-s.done:
		o.t.Fatalf("the batch does not stand: %v", err)
	}
	return s
}

// end lets the handler return, and returns the result of the batch.
func (s *standing) end() error {
	s.goOn()
	return <-s.done
}

// untilGone returns when the backend of the batch is gone.
func (s *standing) untilGone() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(testContext(s.t), hangs)
	defer cancel()
	for one[bool](s.t, s.store, "select exists (select from pg_stat_activity where pid = $1)", s.pid) {
		if ctx.Err() != nil {
			s.t.Fatal("the batch was not ended")
		}
		pause(ctx, time.Millisecond)
	}
}

// owning is a living node that holds the leases of these projections.
func owning(t *testing.T, store *Store, names ...string) []*owner {
	t.Helper()
	node := aNode()
	present(t, store, node)
	var owners []*owner
	for _, l := range claimed(t, store, node, true, ensured(t, store, names...)...) {
		owners = append(owners, &owner{t: t, store: store, node: node, lease: l})
	}
	return owners
}

func modelStore(t *testing.T) *Store {
	t.Helper()
	store := newStore(t)
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(2)...)
	return store
}

func TestClaimEndsTheBatchThatADeadOwnerLeft(t *testing.T) {
	t.Parallel()
	claimEndsLeftovers(t, modelStore(t))
}

func claimEndsLeftovers(t *testing.T, store *Store) {
	t.Helper()
	owners := owning(t, store, "p")
	left := owners[0].stand(0)
	next := aNode()
	if leases := claimed(t, store, next, true, left.lease.Row); len(leases) != 0 {
		t.Fatalf("claimed %v from a living node", leases)
	}
	expire(t, store, left.node)
	leases := claimed(t, store, next, true, left.lease.Row)
	if len(leases) != 1 {
		t.Fatal("nothing was claimed")
	}
	left.untilGone()
	successor := &owner{t: t, store: store, node: next, lease: leases[0]}
	// Otherwise the next batch would wait for the row's lock, for half of its timeout.
	if err := successor.apply(writeAnd(sends("update public.row set n = 10 where id = 0")),
		engine.ApplyOptions{Timeout: hangs}); err != nil {
		t.Fatalf("the new owner's batch: %v", err)
	}
	wantClass(t, left.end(), faults.Unclear)
	successor.applied(2)
	if n := one[int](t, store, "select n from public.row"); n != 10 {
		t.Errorf("the row is %d", n)
	}
}

func TestClaimEndsOnlySessionsOfBatchesThatItTakesOver(t *testing.T) {
	t.Parallel()
	store, elsewhere := modelStore(t), newStore(t)
	dead := owning(t, store, "p", "q")
	alive := owning(t, store, "r")
	left, kept, another := dead[0].stand(0), dead[1].stand(1), alive[0].stand(2)
	class, row := store.control.batchClass, left.lease.Row
	hosts := make(map[string]*pgx.Conn)
	host := func(name string, in *Store, sql string, args ...any) {
		t.Helper()
		hosts[name] = strange(t, in)
		must(hosts[name].Exec(testContext(t), "begin"))(t)
		if _, err := hosts[name].Exec(testContext(t), sql, args...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	host("another lease", store, "select pg_advisory_xact_lock_shared($1, $2)", class, row+1000)
	host("another class", store, "select pg_advisory_xact_lock_shared($1, $2)", class+1, row)
	host("for the session", store, "select pg_advisory_lock($1, $2)", class, row+2000)
	host("one key of the same bits", store, "select pg_advisory_xact_lock($1)", int64(class)<<32|int64(uint32(row)))
	host("the lease's row as the key", store, "select pg_advisory_xact_lock($1)", int64(row))
	host("another schema", store, "select pg_advisory_xact_lock_shared($1, $2)",
		newControlSchema("beside", 0).batchClass, row)
	host("another database", elsewhere, "select pg_advisory_xact_lock_shared($1, $2)", class, row)
	host("no such lock", store, "select from public.model")
	host("locks of the lease's table", store, "lock table millrace.leases in access share mode")
	expire(t, store, left.node)
	next := aNode()
	present(t, store, next)
	if leases := claimed(t, store, next, true, row, alive[0].lease.Row); len(leases) != 1 || leases[0].Row != row {
		t.Fatalf("claimed %v", leases)
	}
	left.untilGone()
	for name, conn := range hosts {
		if err := conn.Ping(testContext(t)); err != nil {
			t.Errorf("%s: the session of a host was ended: %v", name, err)
		}
	}
	if err := errors.Join(kept.end(), another.end()); err != nil {
		t.Errorf("the batches of leases that were not claimed: %v", err)
	}
	wantClass(t, left.end(), faults.Unclear)
}

func TestClaimLeavesTheBatchesOfTheNewOwnerAlone(t *testing.T) {
	t.Parallel()
	store := modelStore(t)
	store.control.batchClass = -7 // as that of every second schema, below zero
	dead := owning(t, store, "p", "q", "r")
	ctx, next := testContext(t), aNode()
	present(t, store, next)
	expire(t, store, dead[0].node)
	rows := []int32{dead[0].lease.Row, dead[1].lease.Row}
	// Here the claim ends the old batches late: its node is already at work.
	got, err := store.port().claim(ctx, next, rows, true)
	if err != nil || len(got.leases) != 2 || len(got.taken) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	old := dead[2].stand(0)
	fresh := (&owner{t: t, store: store, node: next, lease: got.leases[0]}).stand(1)
	must(store.pool.Exec(ctx, queries.Text("end_zombie_batches"), int64(uint32(store.control.batchClass)), got.taken,
		got.began))(t)
	// And again, with the lease of another.
	if leases := claimed(t, store, next, true, append(rows, dead[2].lease.Row)...); len(leases) != 1 {
		t.Fatalf("claimed %v", leases)
	}
	old.untilGone()
	if err := fresh.end(); err != nil {
		t.Errorf("the new owner's batch: %v", err)
	}
	wantClass(t, old.end(), faults.Unclear)
}

// asRole is the same store for a role that may use the control schema and holds these other roles.
func asRole(t *testing.T, store *Store, role, granted string, opts Options) *Store {
	t.Helper()
	mustExec(t, store, "do $$ begin if to_regrole('"+role+"') is null then create role "+role+"; end if; "+
		"exception when duplicate_object or unique_violation then null; end $$")
	mustExec(t, store, "grant usage on schema millrace to "+role)
	mustExec(t, store, "grant all on all tables in schema millrace to "+role)
	if granted != "" {
		mustExec(t, store, "grant "+granted+" to "+role)
	}
	dsn := must(pgtest.WithSetting(store.pool.Config().ConnString(), "options", "-c role="+role))(t)
	return openStore(t, dsn, opts)
}

func TestClaimOfARoleThatMayNotEndSessionsSucceeds(t *testing.T) {
	t.Parallel()
	for role, may := range map[string]struct {
		granted string
		logged  int
	}{
		"millrace_blind":    {"", 0},                  // which does not even see since when others' transactions run
		"millrace_watching": {"pg_read_all_stats", 1}, // which sees it and is refused
	} {
		store := modelStore(t)
		core, logs := observer.New(zap.DebugLevel)
		lesser := asRole(t, store, role, may.granted, Options{Logger: slog.New(zapslog.NewHandler(core))})
		owners := owning(t, store, "p")
		left := owners[0].stand(0)
		expire(t, store, left.node)
		leases := claimed(t, lesser, aNode(), true, left.lease.Row)
		if len(leases) != 1 || leases[0].Epoch != left.lease.Epoch+1 || leases[0].CrashCount != 1 {
			t.Fatalf("%s claimed %v", role, leases)
		}
		if n := logs.FilterMessageSnippet("ending the batches of dead owners failed").Len(); n != may.logged {
			t.Errorf("%s: logged %v", role, logs.All())
		}
		// The fence refuses it, on a session that works.
		err := left.end()
		wantClass(t, err, faults.LeaseLost)
		if !errors.Is(err, projection.ErrLeaseLost) {
			t.Error(err)
		}
		left.untouched()
		successor := &owner{t: t, store: store, lease: leases[0]}
		if err := successor.apply(write, engine.ApplyOptions{}); err != nil {
			t.Fatalf("the new owner's batch: %v", err)
		}
		successor.applied(2)
	}
}

func TestClaimSkipsLockedRows(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	rows := ensured(t, store, "a", "b", "c")
	execIn(t, openTx(t, store), "select from millrace.leases where id = $1 for no key update", rows[1])
	if leases := claimed(t, store, aNode(), true, rows...); len(leases) != 2 || leases[0].Row != rows[0] ||
		leases[1].Row != rows[2] {
		t.Errorf("claimed %v", leases)
	}
}

func TestStoresThatClaimTheSameRowsAtOnceGetEachOnce(t *testing.T) {
	t.Parallel()
	const rounds, stores, names = 20, 2, 200
	store := newStore(t)
	both := []*Store{store, openStore(t, store.pool.Config().ConnString(), Options{})}
	nodes := [stores]engine.Node{aNode(), aNode()}
	for _, node := range nodes {
		present(t, store, node)
	}
	var list []string
	for range names {
		list = append(list, uuid.NewString())
	}
	rows := ensured(t, store, list...)
	for round := range rounds {
		// Half of them are free, half are a dead owner's.
		mustExec(t, store, "update millrace.leases set owner = case when id % 2 = 0 then $1::uuid end",
			uuid.NewString())
		var got [stores][]engine.Lease
		if err := together(stores, func(i int) (err error) {
			got[i], err = both[i].port().Claim(testContext(t), nodes[i], rows, true)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		taken := make(map[int32]bool)
		for _, l := range slices.Concat(got[0], got[1]) {
			if taken[l.Row] || l.Epoch != int64(round+1) {
				t.Fatalf("round %d: %+v, taken before: %v", round, l, taken[l.Row])
			}
			taken[l.Row] = true
		}
		if len(taken) != names {
			t.Fatalf("round %d: %d leases taken, want %d", round, len(taken), names)
		}
	}
}
