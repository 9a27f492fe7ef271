package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestStrangersLockParksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table model (n int)")
	b.exec("insert into model values (0)")
	last := b.Append("a", 10).Positions[9]
	stranger, err := b.store.Pool().Begin(b.Ctx)
	b.Must(err)
	if _, err := stranger.Exec(b.Ctx, "update model set n = -1"); err != nil {
		t.Fatal(err)
	}
	update := kit.Exec("update model set n = n + 1")
	calls := make(map[string]*atomic.Int64)
	var projections []millrace.Projection
	for name, wait := range map[string]func(ctx context.Context, tx kit.Tx) error{
		"once": update,
		"past the deadline": func(ctx context.Context, tx kit.Tx) error {
			return errors.Join(tx.Exec(ctx, "set local lock_timeout = 0"), update(ctx, tx))
		},
		"again and again": func(ctx context.Context, tx kit.Tx) error {
			err := tx.Exec(ctx, "set local lock_timeout = 100")
			for range 100 {
				if err = pgx.BeginFunc(ctx, pg(tx), func(tx pgx.Tx) error { return update(ctx, kit.PgTx{Tx: tx}) }); err == nil || ctx.Err() != nil {
					break
				}
			}
			return err
		},
	} {
		n := new(atomic.Int64)
		calls[name] = n
		projections = append(projections, millrace.Projection{Name: name, Timeout: 600 * time.Millisecond, Retry: kit.Soon(1),
			Handler: b.Store.Batch(kit.FailsAt(name, kit.Any, func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
				n.Add(1)
				return wait(ctx, tx)
			}))})
	}
	rt := b.Running(millrace.Config{}, projections...)
	for name, n := range calls {
		b.Eventually(name+" was tried several times", func() bool { return n.Load() >= 4 })
	}
	b.Must(stranger.Rollback(b.Ctx))
	for name := range calls {
		b.Reaches(rt, name, last)
		b.Verify(name)
		if letters := b.Letters(name); len(letters) != 0 {
			t.Errorf("%s: dead letters %v", name, letters)
		}
	}
}
