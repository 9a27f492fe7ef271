package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// TestTenantThatWasRestoredUnderARunningProjectionStopsIt takes the last events away while everything is live, as a
// restore does. The projection must not go on as if the numbers that are drawn again were old news.
func TestTenantThatWasRestoredUnderARunningProjectionStopsIt(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{PollInterval: 50 * time.Millisecond}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	last := b.append("a", 10).Positions[9]
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, last); err != nil {
		t.Fatal(err)
	}
	b.exec("delete from millrace_default.events where global_seq > 4")
	b.eventually("the projection says that its events are gone", func() bool { return b.status(rt, "p").State == millrace.StateFailed })
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, last+1); !errors.Is(err, projection.ErrFailed) || !errors.Is(err, projection.ErrRestored) {
		t.Errorf("waiting for a failed projection: %v", err)
	}
	status, err := rt.Status(b.ctx)
	if err != nil || status.Tenants[0].Reason == "" {
		t.Errorf("the tenant gives no reason: %+v, %v", status.Tenants, err)
	}
}

// TestRestoredTenantStaysStoppedWhenNewEventsPassTheCheckpoint hides the loss under new events, which are handed out the
// positions of those that are gone. The stop is kept in the database, so that neither they nor another node take it back.
func TestRestoredTenantStaysStoppedWhenNewEventsPassTheCheckpoint(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	id := millrace.ProjectionID{Name: "p"}
	run := func() (*millrace.Runtime, func()) {
		rt := b.runtime(millrace.Config{PollInterval: 50 * time.Millisecond}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
		return rt, b.start(rt)
	}
	rt, stop := run()
	elsewhere := b.runtime(millrace.Config{})
	if err := rt.WaitFor(b.ctx, id, b.append("a", 10).Positions[9]); err != nil {
		t.Fatal(err)
	}
	b.exec("delete from millrace_default.events where global_seq > 4")
	b.exec("alter table millrace_default.events alter column global_seq restart with 5")
	b.exec("update millrace_default.streams set version = 4")
	stopped := func() bool {
		p := b.status(elsewhere, "p")
		return p.State == millrace.StateFailed && strings.Contains(p.Reason, projection.ErrRestored.Error())
	}
	b.eventually("every process says that events are gone", stopped)
	last := b.append("a", 20).Positions[19]
	if last != 24 {
		t.Fatalf("the last event is at %d, and the positions were not handed out again", last)
	}
	stop()
	rt, _ = run()
	b.eventually("the next owner runs it", func() bool { return b.status(rt, "p").Owner != "" && b.status(rt, "p").NotOwned == 0 })
	if err := rt.WaitFor(b.ctx, id, last); !errors.Is(err, projection.ErrFailed) || !stopped() {
		t.Errorf("the next owner goes on: %v, %+v", err, b.status(rt, "p"))
	}
	// A person has mended the read model: what follows the checkpoint is applied.
	if err := rt.Resume(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	b.eventually("it goes on", func() bool { return b.status(rt, "p").Checkpoint == last })
}

// TestRestoreIsRecognisedThoughWritersGoOn lets the first append after a restore find it, long before the next poll.
func TestRestoreIsRecognisedThoughWritersGoOn(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{PollInterval: time.Hour}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, b.append("a", 10).Positions[9]); err != nil {
		t.Fatal(err)
	}
	b.exec("delete from millrace_default.events where global_seq > 4")
	b.exec("alter table millrace_default.events alter column global_seq restart with 5")
	b.exec("update millrace_default.streams set version = 4")
	b.eventually("the projection says that its events are gone", func() bool {
		if b.status(rt, "p").State == millrace.StateFailed {
			return true
		}
		if b.append("a", 1).Positions[0] > 8 {
			t.Fatal("it was not noticed in time")
		}
		pass(b.ctx, 1200*time.Millisecond)
		return false
	})
}

func TestRunUntilIdleReportsAProjectionWhoseEventsAreGone(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.append("a", 10)
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.exec("delete from millrace_default.events where global_seq > 4")
	if _, err := rt.RunUntilIdle(b.ctx); !errors.Is(err, projection.ErrFailed) || !errors.Is(err, projection.ErrRestored) {
		t.Errorf("RunUntilIdle: %v", err)
	}
}
