package moves_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
)

// Tenants are moved between two files, half of them each way, at once. A move holds the writer of its source, and waits for that of its target.
func TestMovesInBothDirectionsAtOnceEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(testContext(t), 15*time.Second)
	defer cancel()
	from, to := newFile(t), newFile(t)
	var all sync.WaitGroup
	move := func(from, to *place, tenant string) {
		all.Go(func() {
			if _, err := millrace.MoveTenant(ctx, from, to, tenant, keep()); err != nil {
				t.Error(err)
			}
		})
	}
	for n := range 10 {
		from.create(t, fmt.Sprint("a", n))
		to.create(t, fmt.Sprint("b", n))
	}
	for n := range 10 {
		move(from, to, fmt.Sprint("a", n))
		move(to, from, fmt.Sprint("b", n))
	}
	all.Wait()
}

// The connection is lost at the commit: the call is repeated. The tenant has projections, and no events.
func TestMoveOfATenantWithoutEventsIsRepeated(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		from.create(t, "acme")
		var h handled
		must(h.node(t, from, "plain").RunUntilIdle(ctx))(t)
		moveIt(t, from, to, "acme", keep())
		report, err := millrace.MoveTenant(ctx, from, to, "acme", keep())
		if err != nil || !report.Earlier {
			t.Errorf("%+v, %v", report, err)
		}
	})
}
