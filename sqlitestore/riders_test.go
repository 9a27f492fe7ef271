package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/tenancy"
)

var ridersSeed = flag.Uint64("riders.seed", 0, "seed of the choices in the test of riders; 0: a new one")

// riders are appends that wait while a handler runs.
type riders struct {
	*batcher
	group sync.WaitGroup
	mu    sync.Mutex
	// answers are the results of the appends, by their stream.
	answers map[string]riderAnswer
}

type riderAnswer struct {
	event.Appended
	err error
}

func newRiders(t *testing.T) *riders {
	return &riders{batcher: newBatcher(t, 1), answers: make(map[string]riderAnswer)}
}

// start starts an append, and returns when it waits.
func (r *riders) start(ctx context.Context, tenant *Tenant, stream string, expected event.Expected,
	events ...event.Event) {
	waiting := r.store.waitingAppends()
	r.group.Go(func() {
		result, err := tenant.Append(ctx, stream, expected, events...)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answers[stream] = riderAnswer{result, err}
	})
	until(r.t, "the append waits", func() bool { return r.store.waitingAppends() > waiting })
}

// startSome starts n appends of two events each.
func (r *riders) startSome(n int) {
	for i := range n {
		r.start(testContext(r.t), r.store.tenant, fmt.Sprint("rider", i), event.NoStream.WithKey(fmt.Sprint(i)),
			someEvents(2)...)
	}
}

// made checks that the appends of startSome were made once, in order, after position.
func (r *riders) made(n int, position int64) {
	r.t.Helper()
	r.group.Wait()
	for i := range n {
		stream := fmt.Sprint("rider", i)
		want := []int64{position + int64(2*i) + 1, position + int64(2*i) + 2}
		if a := r.answers[stream]; a.err != nil || !slices.Equal(a.Positions, want) || a.Version != 2 || a.Repeated {
			r.t.Errorf("%s: %+v, want positions %v", stream, a, want)
		}
	}
	if got := positions(all(r.t, r.store.tenant)); len(got) != int(position)+2*n || got[len(got)-1] != int64(len(got)) {
		r.t.Errorf("positions %v, want %d", got, int(position)+2*n)
	}
}

func TestAppendsThatWaitRideInABatch(t *testing.T) {
	t.Parallel()
	const n = 3
	r := newRiders(t)
	commits := countCommits(t, r.store)
	noError(t, r.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		r.startSome(n)
		return record(ctx, tx, events)
	}, limit))
	r.made(n, 1)
	if c := commits.Load(); c != 1 {
		t.Errorf("%d commits, want 1", c)
	}
	r.holds(1, 1) // the batch has seen none of its riders
	noError(t, r.apply(record, limit))
	r.holds(1+2*n, 1+2*n)
	if got := must(texts(r.store, "select position from model order by at"))(t); fmt.Sprint(got) != "[1 2 3 4 5 6 7]" {
		t.Errorf("handled %v", got)
	}
}

func TestRiderThatFailsFailsAlone(t *testing.T) {
	t.Parallel()
	r := newRiders(t)
	mustExec(t, r.store,
		"create trigger millrace_events_insert_closed before insert on millrace_events when new.type = 'bad' begin select raise(abort, 'bad event'); end")
	commits := countCommits(t, r.store)
	ctx := testContext(t)
	nowhere := must(r.store.ForTenant("nowhere"))(t)
	noError(t, r.apply(func(_ context.Context, tx *sql.Tx, events []event.Envelope) error {
		r.start(ctx, r.store.tenant, "half", event.Any.WithKey("k"), event.Event{Type: "good"},
			event.Event{Type: "bad"})
		r.start(ctx, r.store.tenant, "s", event.Exact(7), someEvents(1)...)
		r.start(ctx, nowhere, "nowhere", event.Any, someEvents(1)...)
		r.startSome(2)
		return record(ctx, tx, events)
	}, limit))
	r.made(2, 1)
	if a := r.answers["half"]; a.err == nil || !strings.Contains(a.err.Error(), "bad event") {
		t.Errorf("second event is bad: %+v", a)
	}
	if a := r.answers["s"]; !errors.Is(a.err, event.ErrVersionConflict) {
		t.Errorf("conflict: %+v", a)
	}
	if a := r.answers["nowhere"]; !errors.Is(a.err, tenancy.ErrUnknown) {
		t.Errorf("unknown tenant: %+v", a)
	}
	if c := commits.Load(); c != 1 {
		t.Errorf("%d commits, want 1", c)
	}
	r.holds(1, 1)
}

// When a batch fails, at any step, its riders are not lost, and none of their calls returns before another transaction
// has committed them.
func TestBatchThatFailsTakesNoRiderDown(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, handle := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"error": func(context.Context, *sql.Tx) error { return boom },
		"panic": func(context.Context, *sql.Tx) error { panic(boom) },
		"constraint at the commit": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into child values (1)")
			return err
		},
		"rollback": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		"left goroutine that rolls back": func(_ context.Context, tx *sql.Tx) error {
			go func() { _ = tx.Rollback() }()
			return boom
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 3
			r := newRiders(t)
			mustExec(t, r.store, "create table parent (id integer primary key)")
			mustExec(t, r.store, "create table child (parent integer references parent deferrable initially deferred)")
			commits := countCommits(t, r.store)
			runs := 0
			err := r.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				runs++
				if runs == 1 {
					r.startSome(n)
				}
				return errors.Join(record(ctx, tx, events), handle(ctx, tx))
			}, limit)
			if f := faultOf(t, err); f.Class != faults.Handler {
				t.Errorf("class %s: %v", f.Class, err)
			}
			r.made(n, 1)
			// That goroutine may spoil the connection. Then the commits are of another one, and are not counted.
			if c := commits.Load(); c > n || c < 1 && name != "left goroutine that rolls back" {
				t.Errorf("%d commits", c)
			}
			r.holds(0, 0)
		})
	}
}

// A rider whose context ends while its batch fails is not made.
func TestCancelledRiderOfABatchThatFailsIsNotMade(t *testing.T) {
	t.Parallel()
	r := newRiders(t)
	mustExec(t, r.store, "create table parent (id integer primary key)")
	mustExec(t, r.store, "create table child (parent integer references parent deferrable initially deferred)")
	ctx, cancel := context.WithCancel(testContext(t))
	// The first rider ends the context of the second one, which has been taken by then.
	a := must(eventlog.NewAppend(nil, "first", event.Any, someEvents(1)))(t)
	first := newWaitingAppend(a, func(ctx context.Context, tx *sql.Tx) (event.Appended, error) {
		cancel()
		return r.store.tenant.apply(ctx, tx, a)
	})
	runs := 0
	err := r.apply(func(_ context.Context, tx *sql.Tx, events []event.Envelope) error {
		runs++
		if runs == 1 {
			r.group.Go(func() {
				if _, err := r.store.writer.append(testContext(t), first); err != nil {
					t.Error(err)
				}
			})
			until(t, "the append waits", func() bool { return r.store.waitingAppends() == 1 })
			r.start(ctx, r.store.tenant, "second", event.Any, someEvents(1)...)
		}
		_, err := tx.Exec("insert into child values (1)")
		return err
	}, limit)
	if f := faultOf(t, err); f.Class != faults.Handler {
		t.Errorf("class %s: %v", f.Class, err)
	}
	r.group.Wait()
	events := all(t, r.store.tenant)
	if second := r.answers["second"]; errors.Is(second.err, context.Canceled) != (len(events) == 2) ||
		second.err == nil != (len(events) == 3) {
		t.Errorf("%+v, %d events", second, len(events))
	}
}

// A trigger with raise(rollback) ends the whole transaction.
func TestRiderThatEndsTheTransactionIsNoFaultOfTheBatch(t *testing.T) {
	t.Parallel()
	r := newRiders(t)
	mustExec(t, r.store,
		"create trigger millrace_events_insert_closed before insert on millrace_events when new.type = 'bad' begin select raise(rollback, 'bad event'); end")
	runs := 0
	noError(t, r.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		// The second run has no riders, whatever waits.
		bad := fmt.Sprint("bad", runs)
		r.start(testContext(t), r.store.tenant, bad, event.Any, event.Event{Type: "bad"})
		runs++
		if runs == 1 {
			r.startSome(2)
		}
		return record(ctx, tx, events)
	}, limit))
	r.made(2, 1)
	r.holds(1, 1)
	for i := range 2 {
		if a := r.answers[fmt.Sprint("bad", i)]; a.err == nil || !strings.Contains(a.err.Error(), "bad event") {
			t.Errorf("%+v", a)
		}
	}
	if runs != 2 {
		t.Errorf("the handler ran %d times", runs)
	}
}

func TestRidersAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		appends int
		body    string
		commits int64
	}{
		"number": {maxRiders + 5, `""`, 2},
		"bytes":  {4, `"` + strings.Repeat("x", maxRiderBytes*2/5) + `"`, 2},
		"one":    {1, `"` + strings.Repeat("x", maxRiderBytes) + `"`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRiders(t)
			commits := countCommits(t, r.store)
			noError(t, r.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				for i := range test.appends {
					r.start(testContext(t), r.store.tenant, fmt.Sprint(i), event.Any,
						event.Event{Type: "T", Body: []byte(test.body)})
				}
				return record(ctx, tx, events)
			}, limit))
			r.group.Wait()
			if c := commits.Load(); c != test.commits {
				t.Errorf("%d commits, want %d", c, test.commits)
			}
			if n := len(all(t, r.store.tenant)); n != 1+test.appends {
				t.Errorf("%d events", n)
			}
		})
	}
}

// A handler that changes its connection may also change what the store's statements do on it.
func TestBatchThatChangedItsConnectionTakesNoRiders(t *testing.T) {
	t.Parallel()
	r := newRiders(t)
	a := must(eventlog.NewAppend(nil, "s", event.Any, someEvents(1)))(t)
	var batch, rode *sql.Tx
	waiting := newWaitingAppend(a, func(ctx context.Context, tx *sql.Tx) (event.Appended, error) {
		rode = tx
		return r.store.tenant.apply(ctx, tx, a)
	})
	noError(t, r.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		batch = tx
		r.group.Go(func() {
			if _, err := r.store.writer.append(testContext(t), waiting); err != nil {
				t.Error(err)
			}
		})
		until(t, "the append waits", func() bool { return r.store.waitingAppends() == 1 })
		must(tx.Exec("pragma ignore_check_constraints = 1"))(t)
		return record(ctx, tx, events)
	}, limit))
	r.group.Wait()
	if rode == nil || rode == batch {
		t.Error("the append rode in the batch, or was not made")
	}
	r.holds(1, 1)
}

// Appends, batches that fail at random, and other transactions run at once.
func TestRidersLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*ridersSeed, rand.Uint64())
	t.Logf("again with the same choices: -riders.seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 5))
	const writers, appends = 6, 60
	r := newRiders(t)
	mustExec(t, r.store, "create table parent (id integer primary key)")
	mustExec(t, r.store, "create table child (parent integer references parent deferrable initially deferred)")
	other := openStore(t, r.store.path, Options{Synchronous: SynchronousNormal})
	done := make(chan error, 1)
	type made struct {
		stream  string
		version int64
	}
	var mu sync.Mutex
	answered := make(map[int64]made)
	go func() {
		done <- together(writers, func(i int) error {
			store, stream := r.store, fmt.Sprint("w", i)
			if i == 0 {
				store = other
			}
			for version := int64(0); version < appends; version++ {
				result, err := store.Append(testContext(t), stream, event.Exact(version), someEvents(1)...)
				if err != nil {
					return err
				}
				mu.Lock()
				answered[result.Positions[0]] = made{stream, result.Version}
				mu.Unlock()
			}
			return nil
		})
	}()
	failed, finished := 0, false
	for !finished || one[int64](t, r.store, "select head from millrace_tenants") > r.lease.Checkpoint {
		if !finished {
			select {
			case err := <-done:
				noError(t, err)
				finished = true
			default:
			}
		}
		if one[int64](t, r.store, "select head from millrace_tenants") == r.lease.Checkpoint {
			continue
		}
		fail := random.IntN(4)
		err := r.run(testContext(t), r.pending(3),
			func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				if err := record(ctx, tx, events); err != nil || fail > 1 {
					return err
				}
				if fail == 0 {
					return errOnPurpose
				}
				_, err := tx.ExecContext(ctx, "insert into child values (1)")
				return err
			}, limit)
		if (err != nil) != (fail <= 1) {
			t.Fatalf("batch: %v", err)
		}
		if err != nil {
			failed++
		}
	}
	events := all(t, r.store.tenant)
	if len(events) != 1+writers*appends || len(answered) != writers*appends || failed == 0 {
		t.Errorf("%d events, %d answers, %d batches failed", len(events), len(answered), failed)
	}
	for i, e := range events {
		if want := (made{e.Stream, e.Version}); e.Position != int64(i+1) || i > 0 && answered[e.Position] != want {
			t.Errorf("event %d: %+v, answered %+v", i, e, answered[e.Position])
		}
	}
	handled := must(texts(r.store, "select position from model order by at"))(t)
	for i, position := range handled {
		if position != fmt.Sprint(i+1) {
			t.Fatalf("handled %v", handled)
		}
	}
	r.holds(len(events), int64(len(events)))
}
