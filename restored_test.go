package millrace_test

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// TestTenantThatWasRestoredUnderARunningProjectionStopsIt takes the last events away while everything is live, as a
// restore does. The projection must not go on as if the numbers that are drawn again were old news.
func TestTenantThatWasRestoredUnderARunningProjectionStopsIt(t *testing.T) {
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{PollInterval: 50 * time.Millisecond}, millrace.Projection{Name: "p", Batch: record("p")})
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

func TestRunUntilIdleReportsAProjectionWhoseEventsAreGone(t *testing.T) {
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Batch: record("p")})
	b.append("a", 10)
	if err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.exec("delete from millrace_default.events where global_seq > 4")
	if err := rt.RunUntilIdle(b.ctx); !errors.Is(err, projection.ErrFailed) || !errors.Is(err, projection.ErrRestored) {
		t.Errorf("RunUntilIdle: %v", err)
	}
}
