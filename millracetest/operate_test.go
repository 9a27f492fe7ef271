package millracetest

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// hook returns a hook that runs a statement.
func (k *Kit) hook(statement string) millrace.Hook {
	if _, ok := k.store.(*pgstore.Store); ok {
		return pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement)
			return err
		})
	}
	return sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	})
}

func TestHookResetIsTested(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		k := on.given(t)
		p := on.totals()
		p.Reset = k.hook("delete from totals")
		k.When(p)
		k.Given("order-3", event.New(paid{"Ada", 7}))
		k.Rebuild(p)
		k.Then(all, "Ada | 50 | NULL", "Bob | 9 | NULL")
		p.Reset = k.hook("delete from totals where customer = 'Ada'") // it forgets Bob
		k.Rebuild(p)
		k.Then(all, "Ada | 50 | NULL", "Bob | 18 | NULL")

		text := failures(t, func(t testing.TB) {
			k := on.given(t)
			k.When(on.totals())
			k.Rebuild(on.totals())
		})
		if !strings.Contains(text, projection.ErrNoHook.Error()) {
			t.Errorf("without a hook: %q", text)
		}
	})
}

// secondTotals is version 2 of totals, which writes to a table of its own. Readers use the view served.
func (on kind) secondTotals(k *Kit) millrace.Projection {
	return millrace.Projection{Name: "totals", Version: 2,
		Swap: k.hook("update served set version = 2"), Drop: k.hook("delete from counts"),
		Handler: on.each(func(_ context.Context, exec execFunc, _ event.Envelope) error {
			return exec("insert into counts values ($1)", 1)
		})}
}

func TestHooksSwapAndDropAreTested(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		k := on.given(t)
		k.Exec("create table counts (n integer)", "create table served (version integer)",
			"insert into served values (1)")
		k.When(on.totals())
		second := on.secondTotals(k)
		k.When(second)
		k.Then("select count(*) from counts", "6")
		k.DropVersion(second)
		k.Then("select count(*) from counts", "0")
		k.Then("select version from served", "1")

		third := second
		third.Version = 3
		k.Swap(third)
		k.Then("select count(*) from counts", "6")
		k.Then("select version from served", "2")
		k.Given("order-3", event.New(paid{"Ada", 7}))
		k.When(third)
		k.Then("select count(*) from counts", "7")
	})
}

func TestSwapOfATenantLeavesOthers(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		k, acme, globex := on.ofTenants(t)
		for _, of := range []*Kit{k, acme, globex} {
			of.Exec("create table if not exists counts (n integer)",
				"create table if not exists served (version integer)", "insert into served values (1)")
		}
		acme.Given("order-1", event.New(paid{"Ada", 30}))
		k.When(on.totals())
		second := on.secondTotals(k)
		acme.Swap(second)
		a, err := admin.New(k.store)
		if err != nil {
			t.Fatal(err)
		}
		left, err := a.Unswapped(t.Context(), "totals@2")
		if err != nil || len(left) != 2 || left[0].Tenant != "default" || left[1].Tenant != "globex" {
			t.Errorf("%v, %v", left, err)
		}
	})
}

func TestReplayOfARepairedHandlerIsTested(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		k := on.given(t)
		broken := on.totals()
		broken.AnyOrder = true
		broken.Middleware = []millrace.Middleware{k.FailAt(2, Always), k.FailAt(5, Always)}
		k.When(broken)
		k.Parked("totals", 2, 5)
		k.Replay(broken)
		k.Parked("totals", 2, 5)
		k.Then(all, "Ada | 43 | NULL", "Bob | 1 | NULL")
		mended := on.totals()
		mended.AnyOrder = true
		k.Replay(mended)
		k.Parked("totals")
		k.Then(all, "Ada | 43 | NULL", "Bob | 9 | NULL")
	})
}
