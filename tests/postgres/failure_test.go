package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// soon tries again at once, as far as there is a try left.
func soon(retries int) projection.RetryPolicy {
	return projection.RetryPolicy{MaxAttempts: max(retries, 0) + 1, Base: time.Millisecond, Cap: 20 * time.Millisecond}
}

// failsAt makes a batch handler that records its events and then, where they include a poison one, fails.
func failsAt(name string, poison func(position int64) bool, fail func(ctx context.Context, tx pgx.Tx, batch int, position int64) error) batchFunc {
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		if err := recordIn(ctx, tx, name, events); err != nil {
			return err
		}
		for _, e := range events {
			if poison(e.Position) {
				return fail(ctx, tx, len(events), e.Position)
			}
		}
		return nil
	}
}

// each makes the batch handler one for single events.
func each(h batchFunc) eventFunc {
	return func(ctx context.Context, tx pgx.Tx, e event.Envelope) error { return h(ctx, tx, []event.Envelope{e}) }
}

func only(position int64) func(int64) bool { return func(p int64) bool { return p == position } }

func (b *bundle) letters(name string) []projection.DeadLetter {
	b.t.Helper()
	letters, err := b.store.DeadLetters(projection.ID{Name: name}).List(b.ctx, projection.DeadLetterPage{Limit: 1000})
	if err != nil && !errors.Is(err, projection.ErrUnknownProjection) { // it did not run yet
		b.t.Fatal(err)
	}
	return letters
}

// idle runs the projections until they are done.
func (b *bundle) idle(projections ...millrace.Projection) {
	b.t.Helper()
	if _, err := b.runtime(millrace.Config{}, projections...).RunUntilIdle(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

// faults are what a handler can do wrong, with what its dead letter then says.
var faults = map[string]struct {
	says string
	fail func(ctx context.Context, tx pgx.Tx) error
}{
	"SQL error": {"22012", execute("select 1/0")},
	"swallowed SQL error": {"returned no error, but a statement of its transaction failed: ERROR: division by zero (SQLSTATE 22012)", func(ctx context.Context, tx pgx.Tx) error {
		_ = execute("select 1/0")(ctx, tx)
		return nil
	}},
	"constraint":          {"23505", execute("insert into strict values (1), (1)")},
	"deferred constraint": {"23505", execute("insert into late values (1), (1)")},
	"Go error":            {"on purpose", func(context.Context, pgx.Tx) error { return errors.New("on purpose") }},
	"panic":               {"on purpose", func(context.Context, pgx.Tx) error { panic("on purpose") }},
	"deadline": {"timeout passed", func(ctx context.Context, _ pgx.Tx) error {
		<-ctx.Done()
		return ctx.Err()
	}},
	"deadline in a statement": {"timeout passed", execute("select pg_sleep(60)")},
	"end of its transaction":  {"commit refused", func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }},
	"another service": {"no route", func(context.Context, pgx.Tx) error {
		return fmt.Errorf("call: %w", &net.OpError{Op: "dial", Err: errors.New("no route")})
	}},
}

func execute(sql string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

func TestPoisonEventIsRetriedAndParkedAndTheRestAppliedOnce(t *testing.T) {
	t.Parallel()
	const retries = 2
	b := setup(t, pgstore.Options{})
	b.exec("create table strict (a int primary key)")
	b.exec("create table late (a int unique deferrable initially deferred)")
	poison := b.append("a", 30).Positions[12]
	b.append("b", 30)
	var projections []millrace.Projection
	alone := make(map[string]*atomic.Int64)
	for kind, fault := range faults {
		for _, single := range []bool{false, true} {
			name := fmt.Sprint(kind, ", single: ", single)
			calls := new(atomic.Int64)
			alone[name] = calls
			p := millrace.Projection{Name: name, MaxEvents: 16, Retry: soon(retries)}
			if strings.HasPrefix(kind, "deadline") {
				p.Timeout = 700 * time.Millisecond
			}
			handler := failsAt(name, only(poison), func(ctx context.Context, tx pgx.Tx, batch int, _ int64) error {
				if batch == 1 {
					calls.Add(1)
				}
				return fault.fail(ctx, tx)
			})
			if single {
				p.Handler = pgstore.Each(each(handler))
			} else {
				p.Handler = pgstore.Batch(handler)
			}
			projections = append(projections, p)
		}
	}
	b.idle(projections...)
	for _, p := range projections {
		kind, _, _ := strings.Cut(p.Name, ",")
		b.verify(p.Name, poison)
		if b.check(p.Name) == nil {
			t.Errorf("%s: the check does not notice that the poison event is missing", p.Name)
		}
		letters := b.letters(p.Name)
		if len(letters) != 1 {
			t.Errorf("%s: %d events parked: %v", p.Name, len(letters), letters)
			continue
		}
		l := letters[0]
		if l.Position != poison || l.Stream != "a" || l.Version != 13 || l.Type != "counted" || l.Attempts != retries+1 || l.LastFailedAt.Before(l.FirstFailedAt) {
			t.Errorf("%s: %+v", p.Name, l)
		}
		if !strings.Contains(l.Error, faults[kind].says) || strings.Contains(l.Stack, "failure_test.go") != (kind == "panic") {
			t.Errorf("%s: says %q, stack %q", p.Name, l.Error, l.Stack)
		}
		// A single event is called for once more, unless its failure comes only with the commit: there it was named.
		tries := alone[p.Name].Load()
		if single := strings.HasSuffix(p.Name, "true"); !single && tries != retries+1 || single && tries < retries+1 {
			t.Errorf("%s: called %d times for the poison event alone", p.Name, tries)
		}
	}
}

func TestAttemptsSurviveARestart(t *testing.T) {
	t.Parallel()
	const retries = 6
	b := setup(t, pgstore.Options{})
	poison := b.append("a", 1).Positions[0]
	var calls atomic.Int64
	p := millrace.Projection{Name: "p", Retry: projection.RetryPolicy{MaxAttempts: retries + 1, Base: 50 * time.Millisecond, Factor: 1},
		Handler: pgstore.Batch(failsAt("p", only(poison), func(context.Context, pgx.Tx, int, int64) error {
			calls.Add(1)
			return errors.New("on purpose")
		}))}
	stop := b.start(b.runtime(millrace.Config{}, p))
	b.eventually("two failures", func() bool { return calls.Load() >= 2 })
	stop()
	if n := calls.Load(); n > retries {
		t.Fatalf("called %d times already: nothing is left for the second run", n)
	}
	b.idle(p)
	if n := calls.Load(); n != retries+1 {
		t.Errorf("called %d times, want %d", n, retries+1)
	}
	if letters := b.letters("p"); len(letters) != 1 || letters[0].Attempts != retries+1 {
		t.Errorf("dead letters %v", letters)
	}
}

func TestNarrowingIsNotCountedAndNotNeededWhereTheHandlerNamesTheEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.append("a", 64).Positions[40]
	var halved, named atomic.Int64
	fails := func(vain *atomic.Int64, at func(int64, error) error) func(context.Context, pgx.Tx, int, int64) error {
		return func(_ context.Context, _ pgx.Tx, batch int, position int64) error {
			if batch > 1 {
				vain.Add(1)
			}
			return at(position, errors.New("on purpose"))
		}
	}
	b.idle(
		millrace.Projection{Name: "halved", Retry: soon(1), Handler: pgstore.Batch(failsAt("halved", only(poison), fails(&halved, func(_ int64, err error) error { return err })))},
		millrace.Projection{Name: "named", Retry: soon(1), Handler: pgstore.Batch(failsAt("named", only(poison), fails(&named, projection.At)))},
	)
	for _, name := range []string{"halved", "named"} {
		b.verify(name, poison)
		if letters := b.letters(name); len(letters) != 1 || letters[0].Attempts != 2 {
			t.Errorf("%s: dead letters %v", name, letters)
		}
	}
	if named.Load() != 1 || halved.Load() < 4 || halved.Load() > 12 {
		t.Errorf("%d batches failed in vain where the event was named, %d where not", named.Load(), halved.Load())
	}
}

func TestManyPoisonEventsAreParkedAndTheOthersApplied(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	var some, all []int64
	for i, p := range b.append("a", 100).Positions {
		all = append(all, p)
		if i%5 == 0 || i%7 == 0 {
			some = append(some, p)
		}
	}
	fail := func(context.Context, pgx.Tx, int, int64) error { return errors.New("on purpose") }
	handlers := map[string]batchFunc{
		"some": failsAt("some", func(p int64) bool { return (p-all[0])%5 == 0 || (p-all[0])%7 == 0 }, fail),
		"all":  failsAt("all", func(int64) bool { return true }, fail),
	}
	var projections []millrace.Projection
	for name, h := range handlers {
		// That nearly everything fails is what is tried here; that it stops a projection has a test of its own.
		projections = append(projections, millrace.Projection{Name: name, Retry: soon(-1), MaxFailureShare: -1, Handler: pgstore.Batch(h)})
	}
	b.idle(projections...)
	b.verify("some", some...)
	b.verify("all", all...)
	if n := len(b.letters("some")); n != len(some) {
		t.Errorf("%d events parked, want %d", n, len(some))
	}
	if n := len(b.letters("all")); n != len(all) {
		t.Errorf("%d events parked, want %d", n, len(all))
	}
}

func TestStrangersLockParksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table model (n int)")
	b.exec("insert into model values (0)")
	last := b.append("a", 10).Positions[9]
	stranger, err := b.store.Pool().Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Exec(b.ctx, "update model set n = -1"); err != nil {
		t.Fatal(err)
	}
	update := execute("update model set n = n + 1")
	calls := make(map[string]*atomic.Int64)
	var projections []millrace.Projection
	for name, wait := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"once": update,
		"past the deadline": func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(execute("set local lock_timeout = 0")(ctx, tx), update(ctx, tx))
		},
		"again and again": func(ctx context.Context, tx pgx.Tx) error {
			err := execute("set local lock_timeout = 100")(ctx, tx)
			for range 100 {
				if err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return update(ctx, tx) }); err == nil || ctx.Err() != nil {
					break
				}
			}
			return err
		},
	} {
		n := new(atomic.Int64)
		calls[name] = n
		projections = append(projections, millrace.Projection{Name: name, Timeout: 600 * time.Millisecond, Retry: soon(1),
			Handler: pgstore.Batch(failsAt(name, func(int64) bool { return true }, func(ctx context.Context, tx pgx.Tx, _ int, _ int64) error {
				n.Add(1)
				return wait(ctx, tx)
			}))})
	}
	rt := b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	for name, n := range calls {
		b.eventually(name+" was tried several times", func() bool { return n.Load() >= 4 })
	}
	if err := stranger.Rollback(b.ctx); err != nil {
		t.Fatal(err)
	}
	for name := range calls {
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
		b.verify(name)
		if letters := b.letters(name); len(letters) != 0 {
			t.Errorf("%s: dead letters %v", name, letters)
		}
	}
}
