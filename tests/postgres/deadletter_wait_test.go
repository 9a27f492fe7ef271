package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

func TestCallerWaitsForItsReplayThroughAnOutage(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	bad := b.append("a", 1).Positions[0]
	mended := make(chan struct{})
	handle := func(context.Context, pgx.Tx, event.Envelope) error {
		select {
		case <-mended:
			return nil
		default:
			return projection.Park(errors.New("no"))
		}
	}
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Each(handle)})
	stop := b.start(rt)
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, bad); err != nil {
		t.Fatal(err)
	}
	stop()
	close(mended)
	type answer struct {
		outcome projection.CommandResult
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		o, err := b.store.DeadLetters(projection.ID{Name: "p"}).Replay(b.ctx, projection.DeadLetterFilter{All: true}, 1)
		done <- answer{o, err}
	}()
	b.eventually("the command is given", func() bool {
		var commands int
		err := b.store.Pool().QueryRow(b.ctx, "select count(*) from millrace.commands").Scan(&commands)
		return err == nil && commands == 1
	})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	pass(b.ctx, 500*time.Millisecond) // for the caller to meet the outage
	if err := server.StartAgain(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.start(rt)
	if a := <-done; a.err != nil || a.outcome.Done != 1 {
		t.Errorf("%+v, %v", a.outcome, a.err)
	}
}

func TestDeadLettersAreDiscardedWhileAnObjectIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.append("a", 2)
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", MaxEvents: 1, Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		if e.Position == 1 {
			return projection.Park(errors.New("no"))
		}
		_, err := tx.Exec(ctx, "insert into forgotten values (1)")
		return err
	})})
	b.start(rt)
	b.eventually("it waits for its table", func() bool { return b.status(rt, "p").State == millrace.StateMissingObject })
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	o, err := b.store.DeadLetters(projection.ID{Name: "p"}).Discard(ctx, projection.DeadLetterFilter{All: true}, 1)
	if err != nil || o.Done != 1 {
		t.Errorf("%+v, %v", o, err)
	}
}
