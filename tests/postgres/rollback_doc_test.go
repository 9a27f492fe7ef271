package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// rollback is a deployment under two roles, whose releases differ in their steps.
type rollback struct {
	*bundle
	ownerDSN string
}

func newRollback(t *testing.T) rollback {
	owner, b := newRoles(t, func(*bundle) {})
	return rollback{b, owner.Pool().Config().ConnString()}
}

func options(steps ...string) (o pgstore.Options) {
	for _, sql := range steps {
		o.TenantSetup = append(o.TenantSetup, pgstore.TenantSQL(sql))
	}
	return o
}

// migrates runs the migrations of a release, as its deployment does.
func (r rollback) migrates(steps ...string) *pgstore.Store {
	r.T.Helper()
	owner := r.open(r.ownerDSN, nil, options(steps...))
	r.Must(owner.Migrate(r.Ctx))
	return owner
}

// serves runs a release whose handler executes a statement for each event.
func (r rollback) serves(sql string, steps ...string) (rt *millrace.Runtime, stop func()) {
	r.T.Helper()
	config := kit.On(kit.Quick, r.open(r.dsn, nil, options(steps...)))
	rt, err := millrace.New(config)
	r.Must(err)
	handle := func(ctx context.Context, tx pgx.Tx, _ event.Envelope) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
	r.Must(rt.Register(millrace.Projection{
		Name: "totals", Retry: kit.Soon(0), MissingObjectTimeout: time.Second, Handler: pgstore.Each(handle),
	}))
	return rt, r.Start(rt)
}

const (
	first     = "create table totals (n int not null); insert into totals values (0)"
	countsOld = "update totals set n = n + 1"
)

func TestStepOfAReleaseThatIsRolledBack(t *testing.T) {
	t.Parallel()
	r := newRollback(t)
	second := "alter table totals add amount int not null default 0"
	r.migrates(first)
	rt, stop := r.serves(countsOld, first)
	r.Reaches(rt, "totals", r.Append("s", 1).Last())
	r.migrates(first, second)
	r.Reaches(rt, "totals", r.Append("s", 1).Last())
	stop()
	rt, stop = r.serves("update totals set n = n + 1, amount = amount + 1", first, second)
	r.Reaches(rt, "totals", r.Append("s", 1).Last())
	stop()
	old := r.migrates(first)
	rt, stop = r.serves(countsOld, first) // rolled back
	_, err := old.CreateTenant(r.Ctx, "late")
	r.Must(err)
	late, err := r.store.ForTenant("late")
	r.Must(err)
	_, err = late.Append(r.Ctx, "s", event.Any, event.Untyped("x", nil))
	r.Must(err)
	r.ReachesOf(rt, "late", "totals", 1)
	r.Reaches(rt, "totals", r.Append("s", 1).Last())
	stop()
	r.migrates(first, second)
	rt, stop = r.serves("update totals set n = n + 1, amount = amount + 1", first, second)
	r.Reaches(rt, "totals", r.Append("s", 1).Last())
	_, err = late.Append(r.Ctx, "s", event.Any, event.Untyped("x", nil))
	r.Must(err)
	r.ReachesOf(rt, "late", "totals", 2)
	if n, amount := value[int](r.bundle, "select n from totals"),
		value[int](r.bundle, "select amount from totals"); n != 5 || amount != 2 {
		t.Errorf("n %d, amount %d", n, amount)
	}
	stop()
}

func TestStepThatRemovesWhatTheOldReleaseUses(t *testing.T) {
	t.Parallel()
	r := newRollback(t)
	second, third := "alter table totals rename n to amount", "alter table totals rename amount to n"
	r.migrates(first, second)
	rt, stop := r.serves("update totals set amount = amount + 1", first, second)
	r.Reaches(rt, "totals", r.Append("s", 1).Last())
	stop()
	rt, stop = r.serves(countsOld, first) // rolled back
	defer func() { stop() }()
	last := r.Append("s", 1).Last()
	if s := r.Is(rt, "totals", admin.StateMissingObject); s.Parked > 0 || s.Checkpoint >= last {
		t.Errorf("%+v", s)
	}
	r.Reaches(rt, "totals", last) // after MissingObjectTimeout
	if letters := r.DeadLettersOf("totals"); len(letters) != 1 || letters[0].Position != last {
		t.Errorf("parked: %+v", letters)
	}
	r.migrates(first, second, third)
	r.Reaches(rt, "totals", r.Append("other", 1).Last())
	result, err := r.store.DeadLetters(projection.ID{Name: "totals"}).Replay(r.Ctx,
		projection.DeadLetterFilter{All: true}, 10)
	if err != nil || result.Done != 1 {
		t.Errorf("replayed: %+v, %v", result, err)
	}
	if n := value[int](r.bundle, "select n from totals"); n != 3 {
		t.Errorf("%d events are counted", n)
	}
}

// Steps are counted and not compared. A step that takes the place of an applied one never runs.
func TestOtherStepInThePlaceOfOneThatWasAppliedHasNoEffect(t *testing.T) {
	t.Parallel()
	r := newRollback(t)
	r.migrates(first, "alter table totals add amount int not null default 0")
	owner := r.migrates(first, "alter table totals add other int not null default 0")
	_, err := owner.CreateTenant(r.Ctx, "late")
	r.Must(err)
	for schema, want := range map[string]bool{"public": false, "millrace_late": true} {
		got := value[bool](r.bundle, `select exists (select 1 from information_schema.columns
			where table_schema = $1 and table_name = 'totals' and column_name = 'other')`, schema)
		if got != want {
			t.Errorf("%s has the column of the other step: %v, want %v", schema, got, want)
		}
	}
}

// The handler of the old program writes to the view, which leads to the table of version 2 after a swap. The owner
// leads it back.
func TestVersionThatWritesThroughTheViewIsCreatedAnew(t *testing.T) {
	onTotals(t, func(t *testing.T, owner *pgstore.Store, b *bundle, version1 millrace.Projection) {
		rt := b.Runtime(millrace.Config{}, version1, totals2())
		stop := b.Start(rt)
		b.Reaches(rt, "totals@2", b.Head())
		b.Must(swapAll(b.Ctx, rt.Admin))
		b.mustRead(6)
		stop()
		rt = b.Runtime(millrace.Config{}, version1) // rolled back
		stop = b.Start(rt)
		_, err := owner.Pool().Exec(b.Ctx, sqlOf(t, "rollback.md", "## A version that was swapped in", 1)[0],
			pgx.QueryExecModeSimpleProtocol)
		b.Must(err)
		b.exec("insert into totals_1 values (0)")
		b.Must(rt.Create(b.Ctx, millrace.ProjectionID{Name: "totals"}, projection.Start{}))
		b.Reaches(rt, "totals", b.Append("order-1", 1).Last())
		b.mustRead(4)
		stop()
		rt = b.Runtime(millrace.Config{}, version1, totals2()) // once more
		stop = b.Start(rt)
		b.Must(swapAll(b.Ctx, rt.Admin))
		b.mustRead(8)
		stop()
	})
}

// A program runs with a schema that is one version newer. It refuses a schema that is two versions newer.
func TestReleaseThatIsRolledBackOverMigrations(t *testing.T) {
	t.Parallel()
	owner, b := newRoles(t, func(*bundle) {})
	for _, want := range []error{nil, pgstore.ErrSchemaTooNew} {
		_, err := owner.Pool().Exec(b.Ctx, `insert into millrace.schema_versions (version, name)
			select max(version) + 1, 'next' from millrace.schema_versions`)
		b.Must(err)
		b.use(b.elsewhere(pgstore.Options{}))
		rt := b.Runtime(millrace.Config{}, b.Recorders("p")...)
		_, err = rt.RunUntilIdle(b.Ctx)
		for doing, err := range map[string]error{"migrate": b.store.Migrate(b.Ctx), "run": err} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", doing, err, want)
			}
		}
		b.Append("s", 1)
	}
}
