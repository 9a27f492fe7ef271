package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// shortly are limits that a test can wait for.
var shortly = faults.Limits{Faults: 4, Over: 300 * time.Millisecond}

// unclear are faults of an event that look like the server's own, by their SQLSTATE.
func (b *bundle) unclear() map[string]func(ctx context.Context, tx kit.Tx) error {
	deadPort := "do $$ begin raise exception 'could not connect' using errcode = '08001'; end $$"
	if value[bool](b, "select exists (select from pg_available_extensions where name = 'dblink')") {
		b.exec("create extension dblink")
		deadPort = "select public.dblink_connect('host=127.0.0.1 port=1 connect_timeout=5')"
	}
	kinds := map[string]func(ctx context.Context, tx kit.Tx) error{
		"XX000": kit.Raise("XX000"),
		"08001": kit.Exec(deadPort),
		"53400": kit.Exec("set local work_mem = '64kB'; set local temp_file_limit = '64kB'; select count(*) from generate_series(1, 100000)"),
		"58P01": kit.Exec("select pg_read_file('/there/is/no/such/file')"),
		"25006": kit.Exec("set local transaction_read_only = on; insert into strict values (1)"),
		"57P01": kit.Exec("select pg_terminate_backend(pg_backend_pid())"),
	}
	if value[int](b, "select current_setting('server_version_num')::int") >= 170000 {
		kinds["25P04"] = kit.Exec("set local transaction_timeout = 50; select pg_sleep(60)")
	}
	return kinds
}

// attempts of one event alone.
type attempts struct {
	calls       atomic.Int64
	first, last atomic.Int64 // by the clock
}

func (a *attempts) alone() {
	a.calls.Add(1)
	now := time.Now().UnixNano()
	a.first.CompareAndSwap(0, now)
	a.last.Store(now)
}

// An SQLSTATE alone does not say that the server is at fault.
func TestFaultsThatOnlyLookLikeServerFaultsCountInTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.Append("a", 30).Positions[12]
	b.Append("b", 30)
	kinds := b.unclear()
	tries := make(map[string]*attempts)
	var projections []millrace.Projection
	for kind, fail := range kinds {
		for _, form := range []string{"batch", "each", "deliver"} {
			name, a := kind+" "+form, new(attempts)
			tries[name] = a
			p := millrace.Projection{Name: name, MaxEvents: 16, Retry: kit.Soon(1), OnFailure: projection.ActionPark}
			handler := kit.FailsAt(name, kit.Only(poison),
				func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
					if batch == 1 {
						a.alone()
					}
					return fail(ctx, tx)
				})
			p.Handler = kit.Limited(map[string]millrace.Handler{
				"batch": b.Store.Batch(handler), "each": b.Store.Each(kit.OneByOne(handler)),
				"deliver": millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
					return b.store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
						return handler(ctx, kit.PgTx{Tx: tx}, []event.Envelope{e.Envelope})
					})
				})}[form], shortly)
			projections = append(projections, p)
		}
	}
	log, logs := kit.Logs()
	rt := b.Runtime(millrace.Config{Logger: log}, projections...)
	b.RunUntilIdle(rt)
	for _, p := range projections {
		kind, form, _ := strings.Cut(p.Name, " ")
		b.Verify(p.Name, poison)
		letters, a := b.DeadLettersOf(p.Name), tries[p.Name]
		if len(letters) != 1 || letters[0].Position != poison || letters[0].Attempts != 2 ||
			!strings.Contains(letters[0].Error, kind) {
			t.Errorf("%s: parked %+v", p.Name, letters)
		}
		// Three faults are not counted, two are. A handler of single events is also called for the event in batches.
		if n := a.calls.Load(); n < 5 || n > 9 && form != "each" {
			t.Errorf("%s: called %d times for the event alone", p.Name, n)
		}
		if over := time.Duration(a.last.Load() - a.first.Load()); over < shortly.Over {
			t.Errorf("%s: parked after %v", p.Name, over)
		}
	}
	if n := logs.FilterMessage("database unusable, all actors wait").Len(); n != 0 {
		t.Errorf("the server was taken for away %d times", n)
	}
}

// A replay of a dead letter goes through the same decision.
func TestFaultOfAReplayThatOnlyLooksLikeAServerFaultCountsInTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 1)
	var replays atomic.Int64
	rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
		Handler: kit.Limited(b.Store.Each(func(ctx context.Context, tx kit.Tx, _ event.Envelope) error {
			if replays.Add(1) == 1 {
				return projection.Park(kit.ErrOnPurpose)
			}
			return kit.Raise("XX000")(ctx, tx)
		}), shortly)})
	b.Eventually("it is parked", func() bool { return b.Status(rt, "p").Parked == 1 })
	if r := <-b.Replaying("p"); r.Failed != 1 {
		t.Fatalf("replayed %+v", r)
	}
	letter := b.DeadLettersOf("p")[0]
	if replays.Load() < 5 || letter.Attempts != 2 || letter.Replays != 1 || !strings.Contains(letter.Error, "XX000") {
		t.Errorf("called %d times; %+v", replays.Load(), letter)
	}
}

// A server that has too little memory for many events may have enough for few.
func TestFaultOfTheSizeOfABatchParksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 200)
	var failed, broadest atomic.Int64
	rt := b.Idle(millrace.Projection{Name: "p", MaxEvents: 64, Retry: kit.Soon(0),
		Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			sql := fmt.Sprintf("set local work_mem = '64kB'; set local temp_file_limit = '400kB'; select count(*) from generate_series(1, %d)", 1000*len(events))
			if err := tx.Exec(ctx, sql); err != nil {
				failed.Add(1)
				return err
			}
			broadest.Store(max(broadest.Load(), int64(len(events))))
			return tx.Record(ctx, "p", events...)
		})})

	b.Verify("p")
	if s := b.Status(rt, "p"); s.Parked != 0 || failed.Load() == 0 || broadest.Load() < 4 {
		t.Errorf("%d parked; %d batches failed, the largest that did not had %d events", s.Parked, failed.Load(),
			broadest.Load())
	}
}

// While one projection meets a poison event, the other projections send nothing, and no lease is read again.
func TestPoisonThatLooksLikeAServerFaultDisturbsNoOtherProjection(t *testing.T) {
	t.Parallel()
	const n = 100
	b := setup(t, pgstore.Options{})
	poison := b.Append("a", 3).Positions[2]
	store, traffic := b.watched()
	var calls atomic.Int64
	projections := []millrace.Projection{{Name: "poisoned",
		Handler: b.Store.Batch(kit.FailsAt("poisoned", kit.Only(poison),
			func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
				calls.Add(1)
				return kit.Raise("XX000")(ctx, tx)
			}))}}
	for i := range n {
		projections = append(projections, b.Recorders(fmt.Sprint("p", i))...)
	}
	log, logs := kit.Logs()
	rt := b.Running(millrace.Config{Store: store, Logger: log}, projections...)
	for _, p := range projections[1:] {
		b.Reaches(rt, p.Name, poison)
	}
	b.Eventually("it has failed several times", func() bool { return calls.Load() >= 6 })
	before := calls.Load()
	sent := traffic.during(b.Ctx, 4*time.Second)
	tries := int(calls.Load() - before)
	// Each try is a batch, a probe and a check of the lease: some fifteen statements. The others are the node's.
	t.Logf("%d tries, %v", tries, sent)
	if sent.statements > 60+25*(tries+1) {
		t.Errorf("%v in 4 s with %d tries:\n%s", sent, tries, strings.Join(sent.often, "\n"))
	}
	b.Eventually("it waits because of its event", func() bool {
		s := b.Status(rt, "poisoned")
		if s.Parked+int64(s.Attempts) != 0 {
			t.Fatalf("%+v", s)
		}
		return s.State == admin.StateWaiting && strings.Contains(s.Reason, "XX000")
	})
	if n := logs.FilterMessage("database unusable, all actors wait").Len(); n != 0 {
		t.Errorf("the server was taken for away %d times", n)
	}
}

// A projection waits for objects that a deployment forgot, in a state that every process sees.
func TestProjectionWaitsForMissingObjects(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table half (n int); create table secret (n int); create role millrace_missing")
	t.Cleanup(func() {
		_, _ = b.store.Pool().Exec(context.Background(), "drop owned by millrace_missing; drop role millrace_missing")
	})
	last := b.Append("a", 40).Positions[39]
	kinds := map[string]struct{ needs, mend string }{
		"42P01": {"insert into lost values (1)", "create table lost (n int)"},
		"42703": {"insert into half (n, m) values (1, 2)", "alter table half add column m int"},
		"42883": {"select forgotten()", "create function forgotten() returns int language sql as 'select 1'"},
		"3F000": {"create table nowhere.t (n int); drop table nowhere.t", "create schema nowhere"},
		"42501": {
			"set local role millrace_missing; insert into secret values (1)",
			"grant insert on secret to millrace_missing",
		},
	}
	var projections []millrace.Projection
	for kind, k := range kinds {
		projections = append(projections, millrace.Projection{Name: kind, MaxEvents: 8, Retry: kit.Soon(0),
			Handler: b.Store.Batch(kit.FailsAt(kind, kit.Any,
				func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
					return kit.Exec(k.needs)(ctx, tx)
				}))})
	}
	rt, remote := b.Runtime(millrace.Config{}, projections...), b.Runtime(millrace.Config{}, projections...)
	b.Start(rt)
	waits := func(rt *millrace.Runtime, kind string) bool {
		s := b.Status(rt, kind)
		return s.State == admin.StateMissingObject && strings.Contains(s.Reason, kind) && s.Attempts == 0 &&
			s.Parked == 0
	}
	for kind, k := range kinds {
		b.Eventually(kind+": it waits", func() bool { return waits(rt, kind) })
		b.Eventually(kind+": every process sees it", func() bool { return waits(remote, kind) })
		b.exec(k.mend)
		b.Reaches(rt, kind, last)
		b.Eventually(kind+": its reason is gone", func() bool {
			here, there := b.Status(rt, kind), b.Status(remote, kind)
			return here.State == admin.StateLive && there.State == admin.StateLive && here.Reason+there.Reason == ""
		})
	}
	b.MustCatchUp(rt, "42P01", "42703", "42883", "3F000", "42501")
}
