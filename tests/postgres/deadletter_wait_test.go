package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestCallerWaitsForItsReplayThroughAnOutage(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	bad := b.Append("a", 1).Positions[0]
	mended := make(chan struct{})
	handle := func(context.Context, kit.Tx, event.Envelope) error {
		select {
		case <-mended:
			return nil
		default:
			return projection.Park(errors.New("no"))
		}
	}
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Each(handle)})
	stop := b.Start(rt)
	b.Reaches(rt, "p", bad)
	stop()
	close(mended)
	type answer struct {
		outcome projection.CommandResult
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		o, err := b.Store.DeadLetters(projection.ID{Name: "p"}).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 1)
		done <- answer{o, err}
	}()
	b.Eventually("the command is given", func() bool {
		var commands int
		err := b.store.Pool().QueryRow(b.Ctx, "select count(*) from millrace.commands").Scan(&commands)
		return err == nil && commands == 1
	})
	b.Must(server.Kill())
	kit.Pass(b.Ctx, 500*time.Millisecond) // for the caller to meet the outage
	b.Must(server.StartAgain(b.Ctx))
	b.Start(rt)
	if a := <-done; a.err != nil || a.outcome.Done != 1 {
		t.Errorf("%+v, %v", a.outcome, a.err)
	}
}
