package tests_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// TestRestoredTenantStaysStoppedWhenNewEventsPassTheCheckpoint hides the loss under new events, which are handed out the
// positions of those that are gone. The stop is kept in the database, so that neither they nor another node take it back.
func TestRestoredTenantStaysStoppedWhenNewEventsPassTheCheckpoint(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		id := millrace.ProjectionID{Name: "p"}
		run := func() (*millrace.Runtime, func()) {
			rt := b.Runtime(millrace.Config{PollInterval: 50 * time.Millisecond}, b.Recorders("p")...)
			return rt, b.Start(rt)
		}
		rt, stop := run()
		elsewhere := b.Runtime(millrace.Config{})
		b.Reaches(rt, "p", b.Append("a", 10).Positions[9])
		b.Must(b.Store.Truncate(b.Ctx, 4))
		stopped := func() bool {
			p := b.Status(elsewhere, "p")
			return p.State == millrace.StateFailed && strings.Contains(p.Reason, projection.ErrRestored.Error())
		}
		b.Eventually("every process says that events are gone", stopped)
		if tenant := b.StatusOf(rt).Tenants[0]; tenant.Reason == "" {
			t.Errorf("the tenant gives no reason: %+v", tenant)
		}
		last := b.Append("a", 20).Positions[19]
		if last != 24 {
			t.Fatalf("the last event is at %d, and the positions were not handed out again", last)
		}
		stop()
		rt, _ = run()
		b.Eventually("the next owner runs it", func() bool { return b.Status(rt, "p").Owner != "" && b.Status(rt, "p").NotOwned == 0 })
		if err := rt.WaitFor(b.Ctx, id, last); !errors.Is(err, projection.ErrFailed) || !errors.Is(err, projection.ErrRestored) || !stopped() {
			t.Errorf("the next owner goes on: %v, %+v", err, b.Status(rt, "p"))
		}
		// Resumed, it applies what follows the checkpoint.
		b.Resume(rt, "p")
		b.Eventually("it goes on", func() bool { return b.Status(rt, "p").Checkpoint == last })
	})
}

// TestRestoreIsRecognisedThoughWritersGoOn lets the first append after a restore find it, long before the next poll.
func TestRestoreIsRecognisedThoughWritersGoOn(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{PollInterval: time.Hour}, b.Recorders("p")...)
		b.Reaches(rt, "p", b.Append("a", 10).Positions[9])
		b.Must(b.Store.Truncate(b.Ctx, 4))
		b.Eventually("the projection says that its events are gone", func() bool {
			if b.Status(rt, "p").State == millrace.StateFailed {
				return true
			}
			if b.Append("a", 1).Positions[0] > 8 {
				t.Fatal("it was not noticed in time")
			}
			kit.Pass(b.Ctx, 1200*time.Millisecond)
			return false
		})
	})
}

func TestRunUntilIdleReportsAProjectionWhoseEventsAreGone(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 10)
		rt := b.Idle(b.Recorders("p")...)
		b.Must(b.Store.Truncate(b.Ctx, 4))
		if _, err := rt.RunUntilIdle(b.Ctx); !errors.Is(err, projection.ErrFailed) || !errors.Is(err, projection.ErrRestored) {
			t.Errorf("RunUntilIdle: %v", err)
		}
	})
}
