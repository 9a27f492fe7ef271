package pgstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/projection"
)

// riders are the leases of projections with an event each that waits.
type riders struct {
	t      *testing.T
	store  *Store
	leases []engine.Lease
	event  event.Envelope
	// connect is the function Connect of each batch. slotted is the number of the batch that already has a slot.
	connect func(ctx context.Context, tenants []string) (release func(), err error)
	slotted int
}

// newRiders claims n projections of the default tenant.
func newRiders(t *testing.T, store *Store, n int) *riders {
	t.Helper()
	makeModel(t, store)
	mustExec(t, store, `create table public.rode (rider integer primary key, note text, synchronous text);
		create function public.note_commit() returns trigger language plpgsql as $$ begin
			update public.rode set synchronous = current_setting('synchronous_commit') where rider = new.rider; return null; end $$;
		create constraint trigger note_commit after insert on public.rode initially deferred for each row execute function public.note_commit()`)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	node := engine.Node{ID: uuid.NewString(), Tenants: []string{projection.DefaultTenant}, LeaseDuration: time.Minute}
	for i := range n {
		node.Projections = append(node.Projections, fmt.Sprintf("p%02d", i))
	}
	must(store.plane().Ensure(testContext(t), projectionsOf(node.Tenants, node.Projections...)))(t)
	leases := must(claimFree(testContext(t), store, node, n))(t)
	slices.SortFunc(leases, func(a, b engine.Lease) int { return strings.Compare(a.ID.Name, b.ID.Name) })
	page := must(store.port().Read(testContext(t), projection.DefaultTenant,
		engine.ReadRange{UpTo: 1 << 40, Limit: 1, MaxBytes: 1 << 20}))(t)
	return &riders{t: t, store: store, leases: leases, event: page.Events[0], slotted: -1}
}

// rides returns a handler that leaves a row of its rider.
func rides(i int, note string) queueFunc {
	return func(_ context.Context, q Queue, _ []event.Envelope) error {
		q.Exec("insert into public.rode values ($1, "+note+")", i)
		return nil
	}
}

// batch runs the batch of a rider.
func (r *riders) batch(ctx context.Context, i int, o engine.ApplyOptions, f queueFunc) error {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	events := []event.Envelope{r.event}
	batch := engine.Batch{Events: events, To: r.event.Position, Connect: r.connect, Connected: i == r.slotted}
	return r.store.Engine().Apply(Queued(f).Engine(), o)(ctx, r.leases[i], batch)
}

// holding makes all batches wait until fn has returned and calls go on, as if the messages before theirs were under
// way.
func (r *riders) holding(fn func()) {
	s := &r.store.sharing
	s.mu.Lock()
	s.senders = s.most
	s.mu.Unlock()
	fn()
	s.mu.Lock()
	s.senders = 1
	s.mu.Unlock()
	s.pass()
}

// waits returns when n batches wait.
func (r *riders) waits(n int) {
	r.t.Helper()
	r.until(func(s *sharing) bool { return len(s.waiting) == n })
}

// until returns when the batches that wait are as wanted.
func (r *riders) until(wanted func(s *sharing) bool) {
	r.t.Helper()
	s, ctx := &r.store.sharing, testContext(r.t)
	for found := false; !found; {
		s.mu.Lock()
		found = wanted(s)
		s.mu.Unlock()
		if ctx.Err() != nil {
			r.t.Fatal("they do not come to wait as they should")
		}
		runtime.Gosched()
	}
}

// together sends the batches of all riders in one message, in order, and returns their errors.
func (r *riders) together(o engine.ApplyOptions, f func(i int) queueFunc) []error {
	r.t.Helper()
	errs := make([]error, len(r.leases))
	var group sync.WaitGroup
	r.holding(func() {
		for i := range r.leases {
			group.Go(func() { errs[i] = r.batch(testContext(r.t), i, o, f(i)) })
			r.waits(i + 1)
		}
	})
	group.Wait()
	return errs
}

// rode fails the test unless the rows of exactly these riders are there, and their checkpoints have moved.
func (r *riders) rode(want ...int) {
	r.t.Helper()
	if got := one[[]int](r.t, r.store,
		"select coalesce(array_agg(rider order by rider), '{}') from public.rode"); !slices.Equal(got, want) {
		r.t.Errorf("rows of riders %v, want %v", got, want)
	}
	var moved []int
	for i, lease := range r.leases {
		if one[int64](r.t, r.store, "select checkpoint from millrace.leases where id = $1",
			lease.Row) == r.event.Position {
			moved = append(moved, i)
		}
	}
	if !slices.Equal(moved, want) {
		r.t.Errorf("checkpoints of riders %v have moved, want %v", moved, want)
	}
}

func TestQueuedBatchesThatWaitShareAMessage(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 5)
	before := r.store.pool.Stat().AcquireCount()
	errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc {
		return rides(i, "pg_backend_pid()")
	})
	used := r.store.pool.Stat().AcquireCount() - before
	noError(t, errors.Join(errs...))
	r.rode(0, 1, 2, 3, 4)
	if used != 1 {
		t.Errorf("%d connections were used for them", used)
	}
	if n := one[int](t, r.store, "select count(distinct note) from public.rode"); n != 1 {
		t.Errorf("they ran in %d sessions", n)
	}
	if got := one[string](t, r.store,
		"select string_agg(synchronous, ' ' order by rider) from public.rode"); got != "off off off off on" {
		t.Errorf("their commits wait for the disk: %s", got)
	}
}

// One after the other, nothing is shared, and nothing is asynchronous.
func TestQueuedBatchThatWaitsForNoneIsDurableItself(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 2)
	for i, want := range []string{"on", "off"} {
		noError(t, r.batch(testContext(t), i, engine.ApplyOptions{AsyncCommit: want == "off"}, rides(i, "''")))
		if got := one[string](t, r.store, "select synchronous from public.rode where rider = $1", i); got != want {
			t.Errorf("synchronous_commit is %s, want %s", got, want)
		}
	}
}

func TestEachCommitOfAMessageCanWaitForTheDisk(t *testing.T) {
	t.Parallel()
	r := newRiders(t, migrated(t, openStore(t, pgtest.Database(t), Options{SyncEachCommit: true})), 3)
	errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc { return rides(i, "''") })
	noError(t, errors.Join(errs...))
	if got := one[string](t, r.store, "select string_agg(synchronous, ' ') from public.rode"); got != "on on on" {
		t.Errorf("their commits wait for the disk: %s", got)
	}
}

// A batch that fails in a message has its own error, as if it had been alone. Those before and after it are applied.
func TestQueuedBatchThatFailsInAMessageFailsAlone(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]struct {
		failing int
		class   faults.Class
		sql     string
		named   bool
	}{
		"first":               {0, faults.Handler, "select 1 / 0", true},
		"in the middle":       {2, faults.Handler, "insert into public.model (position) values (null)", true},
		"last":                {4, faults.MissingObject, "insert into public.absent values (1)", true},
		"deferred constraint": {2, faults.Handler, "insert into public.child values (7)", false},
		"ends the session":    {4, faults.Unclear, "select pg_terminate_backend(pg_backend_pid())", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRiders(t, newStore(t), 5)
			mustExec(t, r.store,
				"create table public.parent (position bigint primary key); create table public.child (position bigint references public.parent deferrable initially deferred)")
			var good []int
			errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc {
				if i != fails.failing {
					good = append(good, i)
					return rides(i, "''")
				}
				return func(ctx context.Context, q Queue, events []event.Envelope) error {
					err := rides(i, "''")(ctx, q, events)
					q.At(events[0]).Exec(fails.sql)
					return err
				}
			})
			fault := wantClass(t, errs[fails.failing], fails.class)
			if fails.named && fault.Position != r.event.Position {
				t.Errorf("position %d is named: %v", fault.Position, fault.Err)
			}
			if !r.store.sharing.goesAlone(r.leases[fails.failing].Row) {
				t.Error("it would be sent with others the next time")
			}
			errs[fails.failing] = nil
			for _, err := range errs {
				if err != nil { // the others are committed, but may be lost in a crash
					wantClass(t, err, fails.class)
				}
			}
			r.rode(good...)
		})
	}
}

// A batch can discard the prepared statements of the session in the middle of a message, which the batches after it
// would use.
func TestQueuedBatchThatDiscardsPreparedStatementsHarmsNoOther(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 5)
	mustExec(t, r.store,
		"create function public.discards() returns text language plpgsql as $$ begin execute 'deallocate all'; return ''; end $$")
	errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc {
		note := "''"
		if i == 2 {
			note = "public.discards()"
		}
		return rides(i, note)
	})
	noError(t, errors.Join(errs...))
	r.rode(0, 1, 2, 3, 4)
}

func TestQueuedBatchWithoutItsLeaseFailsAloneInAMessage(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 3)
	r.leases[1].Epoch++
	errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc { return rides(i, "''") })
	if !errors.Is(errs[1], projection.ErrLeaseLost) {
		t.Errorf("without its lease: %v", errs[1])
	}
	noError(t, errors.Join(errs[0], errs[2]))
	r.rode(0, 2)
}

// A statement that waits holds up the others of its message for a moment only. Its projection is sent alone until it is
// quick again.
func TestQueuedBatchThatWaitsForALockIsSentAlone(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 3)
	tx := must(r.store.pool.Begin(testContext(t)))(t)
	defer func() { _ = tx.Rollback(testContext(t)) }()
	must(tx.Exec(testContext(t), "insert into public.rode values (1)"))(t)
	others := make(chan error, 2)
	waited := make(chan error, 1)
	r.holding(func() {
		for i := range r.leases {
			done := others
			if i == 1 {
				done = waited
			}
			go func() {
				done <- r.batch(testContext(t), i, engine.ApplyOptions{Timeout: time.Minute},
					rides(i, "''"))
			}()
			r.waits(i + 1)
		}
	})
	noError(t, errors.Join(<-others, <-others))
	r.rode(0, 2)
	if !r.store.sharing.goesAlone(r.leases[1].Row) {
		t.Error("the next batch of the projection that waits would hold up others")
	}
	noError(t, tx.Rollback(testContext(t)))
	noError(t, <-waited)
	r.rode(0, 1, 2)
	r.leases[1].Checkpoint = r.event.Position
	mustAppend(t, r.store.tenant, "s", event.Any, someEvents(1)...)
	r.event.Position++
	noError(t, r.batch(testContext(t), 1, engine.ApplyOptions{},
		func(context.Context, Queue, []event.Envelope) error { return nil }))
	if r.store.sharing.goesAlone(r.leases[1].Row) {
		t.Error("a batch that was quick is sent alone next time")
	}
}

// What one batch does to the session does not reach the next one of the message.
func TestQueuedBatchesOfAMessageSeeNothingOfEachOthersSession(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 3)
	mustExec(t, r.store, "create function public.runs(text) returns void language plpgsql as 'begin execute $1; end'")
	for _, sql := range []string{
		"select set_config('DateStyle', 'SQL, DMY', false)", "create temporary table rode (rider integer, note text)",
		"select pg_advisory_lock(7)",
		"select set_config('search_path', 'pg_temp', false)", "select set_config('role', 'pg_monitor', false)",
		"select set_config('default_transaction_read_only', 'on', false)",
		"select set_config('synchronous_commit', 'off', false)",
	} {
		mustExec(t, r.store, "delete from public.rode")
		errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc {
			if i == 1 {
				return func(_ context.Context, q Queue, _ []event.Envelope) error {
					q.Exec("select public.runs($1)", sql) // where the guard of the texts does not see it
					return nil
				}
			}
			return func(_ context.Context, q Queue, _ []event.Envelope) error {
				q.Exec(`insert into rode select $1, concat_ws(' ', current_setting('DateStyle'), current_user,
					(select count(*) from pg_locks where locktype = 'advisory' and objid = 7), current_setting('search_path'), to_regclass('pg_temp.rode'))`, i)
				return nil
			}
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		if n := one[int](t, r.store, "select count(distinct note) from public.rode"); n != 1 {
			t.Errorf("%s: the next batch sees it: %s", sql,
				one[string](t, r.store, "select string_agg(note, ' / ') from public.rode"))
		}
		for i := range r.leases {
			r.leases[i].Checkpoint = r.event.Position
			r.store.sharing.setAlone(r.leases[i].Row, 0)
		}
		mustAppend(t, r.store.tenant, "s", event.Any, someEvents(1)...)
		r.event.Position++
	}
}

// Cancelled batches are not sent, and the others get their turn.
func TestQueuedBatchThatIsCancelledLeavesItsPlace(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 3)
	ctx, cancel := context.WithCancel(testContext(t))
	cancelled, done := make(chan error, 2), make(chan error, 1)
	r.holding(func() {
		for i := range 2 {
			go func() { cancelled <- r.batch(ctx, i, engine.ApplyOptions{}, rides(i, "''")) }()
			r.waits(i + 1)
		}
		r.store.sharing.pass() // the first one leads
		go func() { done <- r.batch(testContext(t), 2, engine.ApplyOptions{}, rides(2, "''")) }()
		cancel()
		for range 2 {
			if err := <-cancelled; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
	noError(t, <-done)
	r.until(func(s *sharing) bool { return len(s.waiting) == 0 && s.senders <= 1 })
}

// If the commit that would have made the others durable fails, they are made durable otherwise before they end.
func TestQueuedBatchesOfAMessageAreDurableWhenTheyEnd(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t,
		pgtest.Options{Settings: pgtest.AsyncCommits(map[string]string{"synchronous_commit": "on"})})
	store := openStore(t, server.DSN("postgres"), Options{})
	migrated(t, store)
	for name, last := range map[string]string{
		"the last is committed": "select 1", "the last fails": "select 1 / 0",
		"the last turns it off": "set local synchronous_commit = off",
	} {
		r := newRiders(t, store, 3)
		noError(t, server.HoldWAL(testContext(t)))
		errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc {
			return func(ctx context.Context, q Queue, events []event.Envelope) error {
				if i == 2 {
					q.Exec(last)
				}
				return rides(i, "''")(ctx, q, events)
			}
		})
		noError(t, errors.Join(errs[:2]...))
		noError(t, server.CrashBackend(testContext(t)))
		store.pool.Reset()
		for i := range 2 {
			if n := one[int](t, store, "select count(*) from public.rode where rider = $1", i); n != 1 {
				t.Errorf("%s: the rows of rider %d are lost", name, i)
			}
		}
		mustExec(t, store,
			"drop table public.rode, public.model; drop function public.note_commit; delete from millrace.projections")
	}
}

// A message has at most twenty batches and 64 KiB. The batch that sends it is always among them.
func TestMessageOfQueuedBatchesIsLimited(t *testing.T) {
	t.Parallel()
	var s sharing
	enter := func(tenant string, bytes int) *sharer {
		b := &batchTx{id: projection.ID{Tenant: tenant}}
		t := &sharer{b: b, statements: []queued.Statement{{SQL: strings.Repeat("x", bytes)}}, turn: make(chan turn, 2)}
		s.enter(t)
		return t
	}
	var all []*sharer
	for i := range 30 {
		all = append(all, enter(fmt.Sprint(i%2), 200))
	}
	group := s.take(all[25])
	if len(group) != mostShared || !slices.Contains(group, all[25]) || slices.Contains(group, all[19]) {
		t.Errorf("%d batches", len(group))
	}
	if !slices.IsSortedFunc(group, func(a, b *sharer) int { return strings.Compare(a.b.id.Tenant, b.b.id.Tenant) }) {
		t.Error("the batches of a tenant are not side by side")
	}
	if rest := s.take(all[0]); len(rest) != 10 || len(s.waiting) != 0 {
		t.Errorf("then %d batches, and %d are left", len(rest), len(s.waiting))
	}
	first, second := enter("a", 40<<10), enter("a", 40<<10)
	if group := s.take(second); len(group) != 1 || group[0] != second {
		t.Errorf("the leader is not alone in its message: %d batches", len(group))
	}
	if group := s.take(second); len(group) != 1 || group[0] != first {
		t.Errorf("a large batch waits for ever: %d batches", len(group))
	}
}

// A leader that gets no connection leaves, and the other one, whose message was too large for both, is sent.
func TestQueuedBatchWhoseLeaderGetsNoConnectionIsSent(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t, connections(2)), 2)
	held := must(r.store.pool.Acquire(testContext(t)))(t)
	other := must(r.store.pool.Acquire(testContext(t)))(t)
	ctx, cancel := context.WithCancel(testContext(t))
	first, second := make(chan error, 1), make(chan error, 1)
	large := func(i int) queueFunc { return rides(i, "'"+strings.Repeat("x", 40<<10)+"'") }
	go func() { first <- r.batch(ctx, 0, engine.ApplyOptions{}, large(0)) }()
	r.waits(1)
	go func() { second <- r.batch(testContext(t), 1, engine.ApplyOptions{}, large(1)) }()
	r.waits(2)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("without a connection: %v", err)
	}
	held.Release()
	other.Release()
	noError(t, <-second)
	r.rode(1)
}

// A session that a hook of the pool lowered stays lowered, between the batches of a message and after them.
func TestQueuedBatchesOfAMessageRunAsTheUserOfTheHook(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	owner := migrated(t, openStore(t, dsn, Options{}))
	mustExec(t, owner,
		"grant all on all tables in schema millrace, public to pg_monitor; grant usage on schema millrace, public to pg_monitor; grant all on all sequences in schema millrace to pg_monitor; grant create on schema public to pg_monitor; grant execute on all functions in schema millrace to pg_monitor")
	lowered := func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set work_mem = '1MB'")
			if err == nil {
				_, err = conn.Exec(ctx, "set role pg_monitor")
			}
			return err
		}
	}
	r := newRiders(t, owner, 3)
	mustExec(t, owner, "grant all on all tables in schema public to pg_monitor")
	r.store = openStore(t, dsn, Options{}, lowered, connections(1))
	note := "current_user || current_setting('work_mem')"
	errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc { return rides(i, note) })
	noError(t, errors.Join(errs...))
	if got := one[string](t, r.store, "select string_agg(distinct note, ' ') || ' ' || "+note+
		" from public.rode"); got != "pg_monitor1MB pg_monitor1MB" {
		t.Errorf("they ran as, and left: %s", got)
	}
}

// A batch that takes long without waiting is sent alone the next time.
func TestQueuedBatchThatIsSlowIsSentAlone(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 3)
	errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc {
		return func(ctx context.Context, q Queue, events []event.Envelope) error {
			if i == 1 {
				q.Exec("select pg_sleep(0.06)")
			}
			return rides(i, "''")(ctx, q, events)
		}
	})
	noError(t, errors.Join(errs...))
	r.rode(0, 1, 2)
	if !r.store.sharing.goesAlone(r.leases[1].Row) {
		t.Error("it would hold up others the next time")
	}
}

// With a synchronous standby, each commit waits as its session does.
func TestCommitsOfAMessageWaitForAStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{Settings: map[string]string{"synchronous_commit": "local"}})
	r := newRiders(t, migrated(t, openStore(t, server.DSN("postgres"), Options{})), 3)
	mustExec(t, r.store, "alter system set synchronous_standby_names = 'standby'")
	mustExec(t, r.store, "select pg_reload_conf()")
	r.store.pool.Reset()
	r.until(func(*sharing) bool { return one[string](t, r.store, "show synchronous_standby_names") == "standby" })
	errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc { return rides(i, "''") })
	noError(t, errors.Join(errs...))
	if got := one[string](t, r.store,
		"select string_agg(synchronous, ' ') from public.rode"); got != "local local local" {
		t.Errorf("their commits wait for the disk: %s", got)
	}
}

// acquiring is a tracer of a pool that calls a function before a connection is acquired.
type acquiring func(ctx context.Context)

func (f acquiring) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool,
	_ pgxpool.TraceAcquireStartData) context.Context {
	f(ctx)
	return ctx
}

func (acquiring) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

func (acquiring) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (acquiring) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tracedRiders are riders of a pool with such a tracer.
func tracedRiders(t *testing.T, n int, f acquiring) *riders {
	return newRiders(t, newStore(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = f }), n)
}

// sends returns the error of a batch that must end by itself.
func (r *riders) sends(i int, f queueFunc) error {
	r.t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.batch(testContext(r.t), i, engine.ApplyOptions{}, f) }()
	select {
	case err := <-done:
		return err
	case <-testContext(r.t).Done():
		r.t.Fatal("it waits for ever")
		return nil
	}
}

// A panic of the host's code while a batch leads keeps no place.
func TestPanicWhileABatchLeadsKeepsNoPlace(t *testing.T) {
	t.Parallel()
	var panics atomic.Bool
	r := tracedRiders(t, leastSenders+1, func(context.Context) {
		if panics.Load() {
			panic("on purpose")
		}
	})
	r.store.sharing.most = leastSenders
	panics.Store(true)
	for i := range leastSenders {
		func() {
			defer func() { _ = recover() }()
			_ = r.batch(testContext(t), i, engine.ApplyOptions{}, rides(i, "''"))
		}()
	}
	panics.Store(false)
	noError(t, r.sends(leastSenders, rides(leastSenders, "''")))
	r.rode(leastSenders)
}
