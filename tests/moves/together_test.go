package moves_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// Two calls move an active tenant to the same target at once. One moves it, and the other does not activate it in the source again.
func TestTwoMovesAtOnceActivateTheTenantOnce(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		hold := func(fn func()) {
			if from.file != nil {
				noError(t, from.file.InTx(ctx, func(context.Context, *sql.Tx) error { fn(); return nil }))
				return
			}
			noError(t, from.pg.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, from.filled(`select from {control}.tenants where tenant = 'acme' for update`))
				fn()
				return err
			}))
		}
		var both sync.WaitGroup
		errs := make([]error, 2)
		hold(func() {
			for i := range errs {
				both.Go(func() { _, errs[i] = millrace.MoveTenant(ctx, from, to, "acme", keep()) })
			}
			<-time.After(700 * time.Millisecond)
		})
		both.Wait()
		t.Log(errs)
		to.mustBe(t, "acme", projection.TenantActive)
		from.mustBe(t, "acme", projection.TenantArchived)
	})
}

// A second call is cancelled while it waits for the first.
func TestCancelledSecondMoveDoesNotActivateTheTenant(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		if from.file != nil {
			t.Skip()
		}
		// both have seen the tenant as active
		g := newGate()
		opts := keep()
		opts.ReadModels = g.hook(to)
		second, cancel := context.WithCancel(ctx)
		var both sync.WaitGroup
		noError(t, from.pg.InTx(ctx, func(txctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(txctx, from.filled(`select from {control}.tenants where tenant = 'acme' for update`))
			both.Go(func() { _, err := millrace.MoveTenant(ctx, from, to, "acme", opts); t.Log("first", err) })
			both.Go(func() {
				_, err := millrace.MoveTenant(second, from, to, "acme", keep())
				t.Log("second", err)
			})
			<-time.After(500 * time.Millisecond)
			return err
		}))
		select {
		case <-g.reached:
		case <-time.After(20 * time.Second):
			cancel()
			both.Wait()
			t.Skip("the second was first")
		}
		<-time.After(500 * time.Millisecond)
		cancel()
		<-time.After(500 * time.Millisecond)
		close(g.open)
		both.Wait()
		to.mustBe(t, "acme", projection.TenantActive)
		from.mustBe(t, "acme", projection.TenantArchived)
	})
}

// A projection of the source does not stop before the call is cancelled.
func TestCancelledWaitLeavesTheTenantActive(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		acme := from.create(t, "acme")
		reached, open := make(chan struct{}), make(chan struct{})
		var once sync.Once
		block := func() { once.Do(func() { close(reached) }); <-open }
		var handler millrace.Handler = pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error { block(); return nil })
		if from.file != nil {
			handler = sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error { block(); return nil })
		}
		rt := must(millrace.New(millrace.Config{Store: from}))(t)
		noError(t, rt.Register(millrace.Projection{Name: "plain", Handler: handler, Tenants: []string{"acme"}}))
		run(t, rt)
		must(acme.Append(ctx, "s", event.NoStream, happened))(t)
		<-reached
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := millrace.MoveTenant(short, from, to, "acme", keep())
		t.Log(err)
		close(open)
		from.mustBe(t, "acme", projection.TenantActive)
	})
}
