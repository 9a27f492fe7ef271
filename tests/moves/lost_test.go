package moves_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// gate is a hook of a target that says that it runs, and then waits.
type gate struct{ reached, open chan struct{} }

func newGate() gate { return gate{make(chan struct{}), make(chan struct{})} }

func (g gate) hook(to *place) millrace.Hook {
	wait := func() { close(g.reached); <-g.open }
	if to.file != nil {
		return sqlitestore.Hook(func(context.Context, *sql.Tx) error { wait(); return nil })
	}
	return pgstore.Hook(func(context.Context, pgx.Tx) error { wait(); return nil })
}

// The session of the source ends while read models are copied. Nothing locks the tenant there any more.
func TestLossOfTheSourceEndsAMove(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		if from.pg == nil {
			t.Skip()
		}
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		g := newGate()
		opts := keep()
		opts.ReadModels = g.hook(to)
		ended := make(chan error)
		go func() { _, err := millrace.MoveTenant(ctx, from, to, "acme", opts); ended <- err }()
		<-g.reached
		n := from.column(t, `select pg_terminate_backend(pid)::text from pg_stat_activity where datname = current_database() and state = 'idle in transaction' and $1 <> ''`, "acme")
		t.Log(n)
		unarchived := from.Engine().UnarchiveTenant(ctx, "acme")
		t.Log(unarchived)
		_, aerr := from.tenant(t, "acme").Append(ctx, "s", event.Any, happened)
		t.Log(aerr)
		close(g.open)
		t.Log(<-ended)
		if len(to.column(t, map[bool]string{true: `select name from millrace_tenants where name = ?1`, false: `select tenant from {control}.tenants where tenant = $1`}[to.file != nil], "acme")) > 0 {
			to.mustBe(t, "acme", projection.TenantActive)
			t.Error("moved, although the source was not locked")
		}
	})
}
