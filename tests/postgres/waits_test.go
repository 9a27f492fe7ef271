package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// What is to be done with dead letters does not wait for an event that waits for its next attempt, an hour maybe; also
// where the session was lost since, and with it what told of the command.
func TestLettersAreReplayedWhileAnEventWaitsThoughTheSessionWasLost(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	bad := b.Append("a", 1).Positions[0]
	b.Append("b", 1)
	var mended atomic.Bool
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Retry: projection.RetryPolicy{Base: time.Hour, Cap: time.Hour},
		Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
			switch {
			case e.Position > bad:
				return projection.Retry(kit.ErrOnPurpose)
			case mended.Load():
				return nil
			}
			return projection.Park(kit.ErrOnPurpose)
		})})
	b.Start(rt)
	b.Eventually("the second event waits", func() bool { p := b.Status(rt, "p"); return p.State == millrace.StateWaiting && p.Attempts == 1 })
	mended.Store(true)
	lost := time.Now()
	b.exec(`select pg_terminate_backend(a.pid) from pg_stat_activity a join pg_locks l using (pid)
		where a.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 1`)
	b.Eventually("the session stands again", func() bool {
		status, err := rt.Status(b.Ctx)
		return err == nil && status.Session.Connected && status.Session.Since.After(lost)
	})
	if o, err := b.Store.DeadLetters(projection.ID{Name: "p"}).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 10); err != nil || o.Done != 1 {
		t.Errorf("replayed %+v, %v", o, err)
	}
	if p := b.Status(rt, "p"); p.State != millrace.StateWaiting || p.Attempts != 1 || p.Parked != 0 {
		t.Errorf("status: %+v", p)
	}
}
