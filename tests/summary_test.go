package tests_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// inAllStates are projections of which each ends in another state. One of them has parked the first event, and one is
// paused by the caller.
func inAllStates(b *kit.Bundle) []millrace.Projection {
	failing := func(positions ...int64) millrace.Handler {
		return b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
			if len(positions) == 0 || slices.Contains(positions, e.Position) {
				return errors.New("on purpose")
			}
			return nil
		})
	}
	never := projection.RetryPolicy{MaxAttempts: 2, Base: time.Hour, Cap: time.Hour}
	return append(b.Recorders("fine", "paused"),
		millrace.Projection{Name: "parks", Retry: kit.Soon(0), OnFailure: projection.ActionPark, Handler: failing(1)},
		millrace.Projection{Name: "stops", Retry: kit.Soon(0), OnFailure: projection.ActionStop, Handler: failing()},
		millrace.Projection{Name: "waits", Retry: never, Handler: failing()})
}

func TestSummaryAndPagesShowWhatAllNodesRun(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		config := millrace.Config{
			Store: tuning.Settings{Heartbeat: 100 * time.Millisecond}, LeaseDuration: 2 * time.Second,
		}
		former := b.Another(config, b.Recorders("gone")...)
		stopFormer := b.Start(former)
		first := b.Append("a", 50)
		head := first.Positions[49]
		b.Reaches(former, "gone", head)
		stopFormer()
		rt, watcher := b.Another(config, inAllStates(b)...), b.Another(config)
		stop := b.Start(rt)
		for _, name := range []string{"fine", "parks", "paused"} {
			b.Reaches(rt, name, head)
		}
		b.Pause(watcher, "paused")

		expect := func(what string, rt *millrace.Runtime, want map[admin.State]int) (s admin.Summary) {
			t.Helper()
			b.Eventually(what, func() bool {
				s = b.Summary(rt)
				return maps.Equal(s.States, want) && s.NotOwned == want[admin.StateNotOwned] &&
					s.Unregistered == want[admin.StateUnregistered]
			})
			return s
		}
		want := map[admin.State]int{
			admin.StateLive: 2, admin.StateWaiting: 1, admin.StateFailed: 1, admin.StatePaused: 1,
			admin.StateUnregistered: 1,
		}
		for what, seen := range map[string]*millrace.Runtime{"its node knows": rt, "another process knows": watcher} {
			s := expect(what, seen, want)
			node := s.Nodes[len(s.Nodes)-1]
			if len(s.Nodes) != 1 || !node.Alive || node.Leases != 4 || node.States[admin.StateLive] != 2 ||
				node.States[admin.StatePaused] != 0 {
				t.Errorf("%s: nodes %+v", what, s.Nodes)
			}
			if s.Tenants[tenancy.Active] != 1 || s.Parked != 1 ||
				s.OldestParkedIn != (millrace.ProjectionID{Tenant: projection.DefaultTenant, Name: "parks"}) ||
				!s.OldestParked.Equal(b.DeadLettersOf("parks")[0].FirstFailedAt) {
				t.Errorf("%s: %+v", what, s)
			}
			if len(s.Lagging) != 2 || len(s.Held) != 0 {
				t.Fatalf("%s: lagging %+v, held %+v", what, s.Lagging, s.Held)
			}
			for _, p := range s.Lagging {
				if p.Behind != 50 || p.Head != head || p.Owner != node.ID || p.Epoch != 1 ||
					!strings.Contains(p.Reason, "on purpose") ||
					p.State != map[string]admin.State{"stops": admin.StateFailed,
						"waits": admin.StateWaiting}[p.ID.Name] {
					t.Errorf("%s: lagging %+v", what, p)
				}
			}
			if here := seen == rt; (s.Node != "") != here || s.Session.Connected != here {
				t.Errorf("%s: %+v", what, s)
			}
		}
		for _, rt := range []*millrace.Runtime{rt, watcher} {
			pagesAgree(b, rt, map[admin.State][]string{admin.StateLive: {"fine", "parks"},
				admin.StateWaiting: {"waits"},
				admin.StateFailed:  {"stops"}, admin.StatePaused: {"paused"}, admin.StateUnregistered: {"gone"}})
		}
		stop()
		expect("after the end of the node", watcher,
			map[admin.State]int{admin.StateNotOwned: 4, admin.StateFailed: 1, admin.StatePaused: 1})
	})
}

// pagesAgree checks that pages by filter have these projections, by their states, and no others.
func pagesAgree(b *kit.Bundle, rt *millrace.Runtime, want map[admin.State][]string) {
	b.T.Helper()
	page := func(filter admin.StatusFilter) (names []string) {
		b.T.Helper()
		for {
			status, err := rt.Status(b.Ctx, filter)
			b.Must(err)
			for _, p := range status.Projections {
				names = append(names, p.ID.Name)
				filter.After = p.ID
			}
			if filter.Limit == 0 || len(status.Projections) < filter.Limit {
				return names
			}
		}
	}
	is := func(filter admin.StatusFilter, want ...string) {
		b.T.Helper()
		slices.Sort(want)
		for filter.Limit = range 4 {
			if got := page(filter); !slices.Equal(got, want) {
				b.T.Errorf("%+v: got %v, want %v", filter, got, want)
			}
		}
	}
	var all, running []string
	for state, names := range want {
		is(admin.StatusFilter{States: []admin.State{state}}, names...)
		is(admin.StatusFilter{States: []admin.State{state}, Names: []string{"waits", "gone"}, Tenants: []string{""}},
			slices.DeleteFunc(slices.Clone(names),
				func(name string) bool { return name != "waits" && name != "gone" })...)
		all = append(all, names...)
		if state != admin.StatePaused && state != admin.StateUnregistered {
			running = append(running, names...)
		}
	}
	is(admin.StatusFilter{}, all...)
	is(admin.StatusFilter{States: slices.Collect(maps.Keys(want))}, all...)
	is(admin.StatusFilter{
		States: []admin.State{
			admin.StateStarting, admin.StateCatchUp, admin.StateElsewhere, admin.StateNotOwned,
			admin.StateMissingObject, "unknown",
		},
	})
	is(admin.StatusFilter{Parked: true}, "parks")
	is(admin.StatusFilter{Parked: true, States: []admin.State{admin.StateLive, admin.StateCatchUp}}, "parks")
	is(admin.StatusFilter{Names: []string{"parks", "stops"}, States: slices.Collect(maps.Keys(want))}, "parks", "stops")
	is(admin.StatusFilter{Owner: b.Summary(rt).Nodes[0].ID}, running...)
	is(admin.StatusFilter{Tenants: []string{"another"}})
	status, err := rt.Status(b.Ctx, admin.StatusFilter{Tenants: []string{"another", ""}, Names: []string{"none"}})
	b.Must(err)
	if len(status.Projections) != 0 || len(status.Tenants) != 2 ||
		!strings.Contains(status.Tenants[0].Reason, tenancy.ErrUnknown.Error()) ||
		status.Tenants[1].Head != b.Head() || status.Tenants[1].Reason != "" {
		b.T.Errorf("%+v", status)
	}
	for _, limit := range []int{-1, 10_001} {
		if _, err := rt.Status(b.Ctx, admin.StatusFilter{Limit: limit}); err == nil ||
			!strings.Contains(err.Error(), "StatusFilter.Limit") {
			b.T.Errorf("limit %d: %v", limit, err)
		}
	}
}
