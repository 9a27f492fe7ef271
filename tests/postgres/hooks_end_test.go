package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// If an operation is taken over, the session in which its hook still runs is ended, also if it is one of the owner's.
func TestTakeoverEndsTheSessionOfAHookOfTheOwner(t *testing.T) {
	t.Parallel()
	owner, b, _ := newTotalsOf(t)
	b.hooksAs(owner)
	node := engine.Node{ID: uuid.NewString(), Projections: []string{"totals"}, LeaseDuration: time.Hour}
	session, err := b.store.Engine().Connect(b.Ctx, node)
	b.Must(err)
	defer func() { _ = session.Close(context.WithoutCancel(b.Ctx)) }()
	id := projection.ID{Name: "totals"}
	_, err = b.Plane().InsertOperation(b.Ctx, engine.NewOperation{ID: id,
		Kind: engine.OperationRebuild, Holds: []string{"totals"}})
	b.Must(err)
	take := func() engine.Operation {
		t.Helper()
		o, err := b.Plane().TakeOperation(b.Ctx, node, nil)
		b.Must(err)
		return *o
	}
	first := take()
	_, err = b.Plane().Hold(b.Ctx, first, first.Holds)
	b.Must(err)
	begun, ended := make(chan struct{}), make(chan error, 1)
	hook := pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "lock table totals_1"); err != nil {
			return err
		}
		close(begun)
		_, err := tx.Exec(ctx, "select pg_sleep(600)")
		return err
	})
	go func() {
		ended <- b.Plane().RunOperation(b.Ctx, first, engine.OperationCode{Hook: hook.Engine(), Timeout: time.Hour})
	}()
	<-begun
	take()
	b.InTime("the hook's session is ended", func() {
		if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("the hook returned %v", err)
		}
	})
	b.exec("select n from totals_1") // nothing holds the table
}
