package storecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// errInterrupted is the error of an interrupted call.
var errInterrupted = errors.New("interrupted by the test")

// faults interrupts calls that change a store.
type faults struct {
	calls []string
	// at is the call that fails, counted from 0, or from the first call of the name since. If answered is set, it has its effect, and only its
	// answer is lost.
	at       int
	since    string
	answered bool
}

// never interrupts no call.
func never() *faults { return &faults{at: -1} }

func (f *faults) call(name string, effect func() error) error {
	f.calls = append(f.calls, name)
	from := 0
	if f.since != "" {
		from = slices.Index(f.calls, f.since)
	}
	if from < 0 || len(f.calls)-1-from != f.at {
		return effect()
	}
	if f.answered {
		if err := effect(); err != nil {
			return err
		}
	}
	return errInterrupted
}

// smallPages is a source with pages of at most 7 rows.
type smallPages struct {
	transfer.Source
	*faults
}

func (s smallPages) Page(ctx context.Context, table transfer.Table, tenant string, after transfer.Row) ([]transfer.Row, error) {
	rows, err := s.Source.Page(ctx, table, tenant, after)
	return rows[:min(len(rows), 7)], err
}

func (s smallPages) Close(ctx context.Context, c transfer.Copy) error {
	return s.call("close", func() error { return s.Source.Close(ctx, c) })
}

func (s smallPages) Open(ctx context.Context) error {
	return s.call("reopen", func() error { return s.Source.Open(ctx) })
}

// faultyTarget is a target whose calls fail.
type faultyTarget struct {
	transfer.Target
	*faults
	// damage runs before the rows are compared.
	damage func()
}

func (t faultyTarget) Begin(ctx context.Context, c transfer.Copy, tenants []transfer.Tenant) error {
	return t.call("begin", func() error { return t.Target.Begin(ctx, c, tenants) })
}

func (t faultyTarget) Reserve(ctx context.Context, c transfer.Copy, last transfer.IDs) error {
	return t.call("reserve", func() error { return t.Target.Reserve(ctx, c, last) })
}

func (t faultyTarget) Take(ctx context.Context, c transfer.Copy, tenant string) error {
	return t.call("take "+tenant, func() error { return t.Target.Take(ctx, c, tenant) })
}

func (t faultyTarget) Write(ctx context.Context, c transfer.Copy, table transfer.Table, tenant string, rows []transfer.Row) error {
	return t.call("write "+table.Name, func() error { return t.Target.Write(ctx, c, table, tenant, rows) })
}

func (t faultyTarget) Reader(ctx context.Context, c transfer.Copy) (transfer.Reader, error) {
	if t.damage != nil {
		t.damage()
	}
	return t.Target.Reader(ctx, c)
}

func (t faultyTarget) Verify(ctx context.Context, c transfer.Copy) error {
	return t.call("verify", func() error { return t.Target.Verify(ctx, c) })
}

func (t faultyTarget) Open(ctx context.Context, c transfer.Copy, tenant transfer.Tenant) error {
	return t.call("open "+tenant.Name, func() error { return t.Target.Open(ctx, c, tenant) })
}

func (t faultyTarget) End(ctx context.Context, c transfer.Copy) error {
	return t.call("end", func() error { return t.Target.End(ctx, c) })
}

func (t faultyTarget) Cancel(ctx context.Context, c transfer.Copy) error {
	return t.call("cancel", func() error { return t.Target.Cancel(ctx, c) })
}

// runFaulty is Run with faults.
func runFaulty(ctx context.Context, from *sqlitestore.Store, to *pgstore.Store, opts Options, f *faults) error {
	_, err := run(ctx, smallPages{from.CopySource(), f}, faultyTarget{Target: to.CopyTarget(opts.ReadModels, opts.named(Rebuild)), faults: f}, opts)
	return err
}

// small makes a store with two tenants and few rows.
func small(t testing.TB) (source *sqlitestore.Store, want map[string]lines) {
	t.Helper()
	source = newSource(t)
	fillSome(t, source, 7, 10, tenants[:2])
	want = make(map[string]lines)
	for _, tenant := range tenants[:2] {
		want[tenant] = expected(t, source, tenant)
	}
	return source, want
}

// mustHave checks that the target has what the source had.
func mustHave(t testing.TB, target *pgstore.Store, want map[string]lines) {
	t.Helper()
	for tenant, all := range want {
		all.diff(t, copied(t, target, tenant, all["events"]))
	}
}

// TestCopyContinuesAfterAnInterruptionAtEachStep fails each call that changes a store, once before its effect and once
// after it, and then calls Run again.
func TestCopyContinuesAfterAnInterruptionAtEachStep(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, want := small(t)
	target := newTarget(t)
	f := never()
	noError(t, runFaulty(ctx, source, target, keepAll(), f))
	mustHave(t, target, want)
	steps := f.calls
	if len(steps) < 30 {
		t.Fatalf("only %d steps: %q", len(steps), steps)
	}
	for at, step := range steps {
		t.Run(fmt.Sprint(at, " ", step), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			source, want := small(t)
			target := newTarget(t)
			for _, answered := range []bool{false, true} {
				// The second interruption is at the first step that was not done.
				f := &faults{at: at, answered: answered}
				if answered {
					f.at = 1
				}
				if err := runFaulty(ctx, source, target, keepAll(), f); !errors.Is(err, errInterrupted) && (err != nil || !answered) {
					t.Fatalf("interrupted at %d: %v", f.at, err)
				}
			}
			noError(t, runFaulty(ctx, source, target, keepAll(), never()))
			mustHave(t, target, want)
		})
	}
}

// TestAnswerOfEachStepMayBeLost fails each call after its effect.
func TestAnswerOfEachStepMayBeLost(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, want := small(t)
	target := newTarget(t)
	for at := 0; ; at++ {
		err := runFaulty(ctx, source, target, keepAll(), &faults{at: at, answered: true})
		if err == nil {
			break
		}
		if !errors.Is(err, errInterrupted) {
			t.Fatal(err)
		}
	}
	mustHave(t, target, want)
}

// TestRunContinuesAfterAnInterruptedCancellation interrupts the cancellation of a copy that was compared, between two
// tenants.
func TestRunContinuesAfterAnInterruptedCancellation(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, want := small(t)
	target := newTarget(t)
	opts := keepAll()
	opts.ReadModels = func(context.Context, pgx.Tx, string) error { return errInterrupted }
	if _, err := Run(ctx, source, target, opts); !errors.Is(err, errInterrupted) {
		t.Fatal(err)
	}
	// The tenants are cancelled in the order of their names.
	postgres(t, target, `create function public.refuse() returns trigger language plpgsql as $$ begin raise 'refused by the test'; end $$`)
	postgres(t, target, `create trigger refuse before truncate on millrace_default.events execute function public.refuse()`)
	if err := Cancel(ctx, source, target); err == nil || !strings.Contains(err.Error(), "refused by the test") {
		t.Fatal(err)
	}
	if n := collectPG(t, target, `select stream_id from millrace_acme.events`); len(n) > 0 {
		t.Fatalf("the first tenant has %d events", len(n))
	}
	must(Run(ctx, source, target, keepAll()))(t)
	mustHave(t, target, want)
}

// TestPageWhoseCommitFailsIsCopiedAgain makes the commit of a page fail, after all its statements succeeded.
func TestPageWhoseCommitFailsIsCopiedAgain(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, want := small(t)
	target := newTarget(t)
	duringCopy(t, source, target)
	postgres(t, target, `create function public.refuse() returns trigger language plpgsql as $$ begin raise 'refused by the test'; end $$`)
	postgres(t, target, `create constraint trigger refuse after insert on millrace_acme.streams deferrable initially deferred for each row execute function public.refuse()`)
	if _, err := Run(ctx, source, target, keepAll()); err == nil || !strings.Contains(err.Error(), `tenant "acme": copy streams: `) || !strings.Contains(err.Error(), "refused by the test") {
		t.Errorf("a commit that fails: %v", err)
	}
	postgres(t, target, `drop trigger refuse on millrace_acme.streams`)
	must(Run(ctx, source, target, keepAll()))(t)
	mustHave(t, target, want)
}

func TestCopyContinuesAfterACancellation(t *testing.T) {
	t.Parallel()
	source, want := small(t)
	target := newTarget(t)
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancel(testContext(t))
		opts, seen := keepAll(), 0
		opts.Progress = func(Progress) {
			if seen++; seen == n {
				cancel()
			}
		}
		_, err := Run(ctx, source, target, opts)
		cancel()
		if err == nil {
			if n < 10 {
				t.Errorf("only %d cancellations", n-1)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	mustHave(t, target, want)
}

// TestCancelledCopyLeavesBothStoresAsTheyWere cancels copies after each step.
func TestCancelledCopyLeavesBothStoresAsTheyWere(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, want := small(t)
	target := newTarget(t)
	steps := 0
	for at := 1; ; at++ {
		f := &faults{at: at, answered: true}
		err := runFaulty(ctx, source, target, keepAll(), f)
		if !errors.Is(err, errInterrupted) {
			t.Fatalf("at %d: %v", at, err)
		}
		if strings.HasPrefix(f.calls[at], "open") {
			if err := Cancel(ctx, source, target); !errors.Is(err, ErrOpened) {
				t.Errorf("cancelled although a tenant is open: %v", err)
			}
			break
		}
		// The cancellation itself is interrupted, too.
		for answered := range 2 {
			f := &faults{at: 0, answered: answered == 1}
			if err := cancel(ctx, smallPages{source.CopySource(), f}, faultyTarget{Target: target.CopyTarget(nil, nil), faults: f}); !errors.Is(err, errInterrupted) {
				t.Fatalf("at %d: %v", at, err)
			}
		}
		if err := Cancel(ctx, source, target); err != nil {
			t.Fatalf("after %s: %v", f.calls[at], err)
		}
		sqlite(t, source, `update millrace_tenants set head = head`) // it is open
		if left := collectPG(t, target, `select tenant from millrace.tenants where state <> 'active' or copy is not null
			union all select id::text from millrace.copies union all select name from millrace.projections union all select id::text from millrace.dead_letters
			union all select stream_id from millrace_default.streams`); len(left) > 0 {
			t.Errorf("after %s the target has %q", f.calls[at], left)
		}
		steps++
	}
	if steps < 20 {
		t.Errorf("only %d steps", steps)
	}
	noError(t, runFaulty(ctx, source, target, keepAll(), never()))
	mustHave(t, target, want)
}
