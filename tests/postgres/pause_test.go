package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// Pause, from another process, returns when the batch under way has ended and the lease is free, and not before.
func TestPauseReturnsWhenNothingOfTheProjectionRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	slow := newBlockable()
	b.start(b.another(millrace.Config{}, append(several("other"), millrace.Projection{Name: "slow", Handler: pgstore.Batch(slow.handle)})...))
	remote := b.runtime(millrace.Config{}, several("none")...)
	id := millrace.ProjectionID{Name: "slow"}
	b.eventually("it is claimed", func() bool { return b.status(remote, "slow").Owner != "" })
	slow.armed.Store(true)
	b.append("a", 5)
	<-slow.entered

	short, cancel := context.WithTimeout(b.ctx, 300*time.Millisecond)
	defer cancel()
	if err := remote.Pause(short, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a pause during a batch: %v", err)
	}
	if p := b.status(remote, "slow"); p.Owner == "" || p.Checkpoint != 0 {
		t.Errorf("%+v", p)
	}
	paused := make(chan error, 1)
	go func() { paused <- remote.Pause(b.ctx, id) }()
	close(slow.release)
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
	if p := b.status(remote, "slow"); p.State != millrace.StatePaused || p.Owner != "" || p.Checkpoint != 5 {
		t.Errorf("%+v", p)
	}
	last := b.append("a", 5).Positions[4]
	if err := remote.WaitFor(b.ctx, millrace.ProjectionID{Name: "other"}, last); err != nil {
		t.Fatal(err)
	}
	if err := remote.Pause(b.ctx, id); err != nil { // it is paused already
		t.Fatal(err)
	}
	if n := len(slow.entered); n != 0 {
		t.Errorf("the handler was called %d times while the projection was paused", n)
	}
	if err := remote.Resume(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := remote.WaitFor(b.ctx, id, last); err != nil {
		t.Fatal(err)
	}
	b.verify("slow")
}

func TestPauseThatIsTakenBackSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	slow := newBlockable()
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "slow", Handler: pgstore.Batch(slow.handle)})
	b.start(rt)
	slow.armed.Store(true)
	last := b.append("a", 5).Positions[4]
	<-slow.entered
	id := millrace.ProjectionID{Name: "slow"}
	paused := make(chan error, 1)
	go func() { paused <- rt.Pause(b.ctx, id) }()
	b.eventually("it is paused", func() bool {
		var wanted string
		err := b.store.Pool().QueryRow(b.ctx, "select desired_state from millrace.projections").Scan(&wanted)
		return err == nil && wanted == "pause"
	})
	if err := rt.Resume(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := <-paused; !errors.Is(err, projection.ErrResumed) {
		t.Errorf("the pause ended with %v", err)
	}
	close(slow.release)
	if err := rt.WaitFor(b.ctx, id, last); err != nil {
		t.Fatal(err)
	}
	b.verify("slow")
}

// The owner may only be frozen: it must not commit when it goes on.
func TestPauseTakesTheLeaseOfADeadOwnerAway(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{}, several("p")...)
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	const dead = "11111111-1111-1111-1111-111111111111"
	b.exec(`insert into millrace.nodes (id, projections, tenants, session_key, expires_at)
		values ('` + dead + `', '{p}', '{}', 1, now() - interval '1 second')`)
	b.exec("update millrace.leases set owner = '" + dead + "', free_since = null, epoch = 7")
	id := millrace.ProjectionID{Name: "p"}
	if err := rt.Pause(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	if p := b.status(rt, "p"); p.State != millrace.StatePaused || p.Owner != "" || p.Epoch != 8 {
		t.Errorf("%+v", p)
	}
	// What lives is left alone.
	b.exec("update millrace.nodes set expires_at = now() + interval '1 hour'")
	b.exec("update millrace.leases set owner = '" + dead + "', free_since = null, epoch = 9")
	short, cancel := context.WithTimeout(b.ctx, 200*time.Millisecond)
	defer cancel()
	if err := rt.Pause(short, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the pause of what a living node owns: %v", err)
	}
	if p := b.status(rt, "p"); p.Owner != dead || p.Epoch != 9 {
		t.Errorf("%+v", p)
	}
}

// A FailureHandler is user code like a handler: Pause cancels its context, and returns when it has ended.
func TestPauseWaitsForTheFailureHandler(t *testing.T) {
	b := setup(t, pgstore.Options{})
	entered, canceled, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	rt := b.runtime(millrace.Config{}, millrace.Projection{
		Name:    "p",
		Handler: pgstore.Batch(func(context.Context, pgx.Tx, []event.Envelope) error { return errors.New("on purpose") }),
		FailureHandler: func(ctx context.Context, _ projection.Failure) projection.Action {
			close(entered)
			<-ctx.Done()
			close(canceled)
			<-release
			return projection.ActionPark
		},
	})
	b.start(rt)
	b.append("a", 1)
	<-entered
	paused := make(chan error, 1)
	go func() { paused <- rt.Pause(b.ctx, millrace.ProjectionID{Name: "p"}) }()
	<-canceled
	select {
	case err := <-paused:
		close(release)
		t.Fatalf("Pause returned while the FailureHandler ran: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(release)
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
	if p := b.status(rt, "p"); p.Owner != "" || p.Parked != 0 || p.Checkpoint != 0 {
		t.Errorf("%+v", p)
	}
}
