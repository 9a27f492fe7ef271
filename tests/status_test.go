package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// elsewhere returns the status of a projection of the default tenant as an Admin sees it.
func elsewhere(b *kit.Bundle, a *admin.Admin, name string) admin.ProjectionStatus {
	b.T.Helper()
	status, err := a.Status(b.Ctx, admin.StatusFilter{})
	b.Must(err)
	return status.Projection(millrace.ProjectionID{Name: name})
}

// blockedAfter is a projection whose handler takes some events, and then waits for release.
func blockedAfter(name string, after int, release <-chan struct{}) millrace.Projection {
	taken := 0
	return millrace.Projection{Name: name,
		Handler: millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
			taken++
			if taken <= after {
				return nil
			}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})}
}

// hourly tries failed events again after an hour.
var hourly = projection.RetryPolicy{MaxAttempts: 9, Base: time.Hour, Cap: time.Hour, Jitter: projection.None}

// quickBeats makes what a node reports arrive soon.
var quickBeats = millrace.Config{Store: tuning.Settings{Heartbeat: 50 * time.Millisecond}}

func TestAdminWithoutRuntimeSeesTheStatesOfOtherNodes(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		release := make(chan struct{})
		fails := b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error { return errors.New("on purpose") })
		rt := b.Another(quickBeats, append(b.Recorders("live"),
			blockedAfter("behind", 0, release), millrace.Projection{Name: "fails", Retry: hourly, Handler: fails})...)
		head := b.Append("a", 700).Positions[699]
		stop := b.Start(rt)
		a := newAdmin(b)
		b.Reaches(rt, "live", head)
		b.Is(rt, "fails", admin.StateWaiting)
		want := map[string]admin.State{
			"live": admin.StateLive, "behind": admin.StateCatchUp, "fails": admin.StateWaiting,
		}
		for name, state := range want {
			var here, there admin.ProjectionStatus
			b.Eventually(name+" is seen alike by both", func() bool {
				here, there = b.Status(rt, name), elsewhere(b, a, name)
				return here.State == state && there.State == state && here.Position == there.Position
			})
			if there.Mark != head || there.Head != head || there.Behind != here.Behind || there.Owner != here.Owner ||
				there.Epoch != here.Epoch || there.Owner == "" {
				t.Errorf("%s: %+v, on its node %+v", name, there, here)
			}
			if (there.Lag > 0) != (name != "live") {
				t.Errorf("%s has a lag of %v", name, there.Lag)
			}
			selected, err := a.Status(b.Ctx, admin.StatusFilter{States: []admin.State{state}})
			b.Must(err)
			if len(selected.Projections) != 1 || selected.Projections[0].ID.Name != name ||
				selected.Tenants[0].Mark != head || selected.Tenants[0].Held != nil {
				t.Errorf("%s: selected by its state are %+v", name, selected)
			}
		}
		if p := elsewhere(b, a, "live"); !p.NextAttempt.IsZero() || p.LastError != "" || !p.LastErrorAt.IsZero() ||
			p.Behind != 0 {
			t.Errorf("%+v", p)
		}
		for what, p := range map[string]admin.ProjectionStatus{"on its node": b.Status(rt, "fails"),
			"elsewhere": elsewhere(b, a, "fails")} {
			delay := p.NextAttempt.Sub(p.LastErrorAt)
			if p.FailingPosition != 1 || p.Attempts != 1 || p.LastError != "on purpose" ||
				delay < time.Hour-time.Second || delay > time.Hour+time.Second {
				t.Errorf("%s the failing event is tried again after %v: %+v", what, delay, p)
			}
		}
		close(release)
		b.Eventually("the end is seen", func() bool { return elsewhere(b, a, "behind").State == admin.StateLive })
		stop()
		b.Is(rt, "live", admin.StateNotOwned)
	})
}

// LastError still shows the error of an event after a later attempt has handled the event.
func TestLastErrorOutlivesItsEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		failed := false
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
			Retry: kit.Soon(9), Handler: b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error {
				if !failed {
					failed = true
					return errors.New("only once")
				}
				return nil
			})})
		b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
		for what, p := range map[string]admin.ProjectionStatus{"on its node": b.Status(rt, "p"),
			"elsewhere": elsewhere(b, newAdmin(b), "p")} {
			if p.LastError != "only once" || p.LastErrorAt.IsZero() || p.Reason != "" || p.Attempts != 0 ||
				!p.NextAttempt.IsZero() {
				t.Errorf("%s: %+v", what, p)
			}
		}
	})
}

func TestLagIsTheAgeOfTheOldestEventThatIsNotHandled(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		release := make(chan struct{})
		rt := b.Running(quickBeats, blockedAfter("p", 1, release))
		b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
		a := newAdmin(b)
		if p := elsewhere(b, a, "p"); p.Lag != 0 || p.Behind != 0 {
			t.Errorf("at the end of the events it lags by %v: %+v", p.Lag, p)
		}
		before := time.Now()
		b.Append("a", 1)
		after := time.Now()
		const rounding = time.Millisecond
		for range 2 {
			began := time.Now()
			p := elsewhere(b, a, "p")
			if p.Lag < began.Sub(after)-rounding || p.Lag > time.Since(before)+rounding {
				t.Errorf("a lag of %v, for an event that is between %v and %v old", p.Lag, began.Sub(after),
					time.Since(before))
			}
			if here := b.Status(rt, "p"); here.Lag < p.Lag {
				t.Errorf("its node sees a lag of %v, after one of %v", here.Lag, p.Lag)
			}
			kit.Pass(b.Ctx, 300*time.Millisecond)
			b.Append("a", 1) // a later event changes nothing
		}
		close(release)
		b.Eventually("nothing lags at the end",
			func() bool { p := elsewhere(b, a, "p"); return p.Lag == 0 && p.Behind == 0 })
	})
}

func TestRateIsThatOfTheNodeThatRunsTheProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		release := make(chan struct{})
		p := blockedAfter("p", 300, release)
		p.MaxEvents = 10
		b.Append("a", 700)
		rt := b.Running(quickBeats, p)
		b.Eventually("the node reports its rate",
			func() bool { return b.Status(rt, "p").Rate > 0 && elsewhere(b, newAdmin(b), "p").Rate > 0 })
		s, err := newAdmin(b).Summary(b.Ctx)
		b.Must(err)
		if len(s.Lagging) != 1 || s.Lagging[0].Rate <= 0 {
			t.Errorf("lagging: %+v", s.Lagging)
		}
		close(release)
		b.Eventually("it comes to the end", func() bool { return b.Status(rt, "p").Behind == 0 })
	})
}

// What programs print can be read again, whatever the store.
func TestStatusAndSummaryRoundTripAsJSON(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		config := quickBeats
		config.NodeName = "a \"name\""
		rt := b.Another(config, inAllStates(b)...)
		stop := b.Start(rt)
		b.Append("a", 5)
		b.Is(rt, "waits", admin.StateWaiting)
		b.Is(rt, "parks", admin.StateLive)
		b.Pause(rt, "paused")
		check := func(what string, a *admin.Admin) {
			t.Helper()
			status, err := a.Status(b.Ctx, admin.StatusFilter{})
			b.Must(err)
			summary, err := a.Summary(b.Ctx)
			b.Must(err)
			for _, value := range []any{status, summary} {
				encoded, err := json.Marshal(value)
				b.Must(err)
				decoded := reflect.New(reflect.TypeOf(value))
				b.Must(json.Unmarshal(encoded, decoded.Interface()))
				if got := decoded.Elem().Interface(); !reflect.DeepEqual(got, value) {
					t.Errorf("%s: got %+v, want %+v", what, got, value)
				}
			}
		}
		check("on its node", rt.Admin)
		check("elsewhere", newAdmin(b))
		stop()
		check("without nodes", newAdmin(b))
	})
}

func TestSummaryNamesTheTenantsThatLagMost(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		fails := b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error { return errors.New("on purpose") })
		tenants := b.Tenants(13)
		rt := b.Running(quickBeats, append(b.Recorders("fine"),
			millrace.Projection{Name: "f1", Retry: hourly, Handler: fails},
			millrace.Projection{Name: "f2", Retry: hourly, Handler: fails})...)
		var want []admin.TenantLag
		for i, tenant := range tenants[1:] {
			b.AppendTo(tenant, "a", 20-i)
			if len(want) < 10 {
				want = append(want, admin.TenantLag{Tenant: tenant.Name(), Behind: int64(20 - i), Lagging: 2})
			}
		}
		for what, a := range map[string]*admin.Admin{"on the node": rt.Admin, "elsewhere": newAdmin(b)} {
			b.Eventually(what, func() bool {
				s, err := a.Summary(b.Ctx)
				b.Must(err)
				return slices.EqualFunc(s.LaggingTenants, want, func(got, want admin.TenantLag) bool {
					worst := got.Worst
					got.Worst = millrace.ProjectionID{}
					return got == want && worst.Tenant == want.Tenant && (worst.Name == "f1" || worst.Name == "f2")
				})
			})
		}
	})
}

// A node reports the 10 projections that are the furthest behind. The states of more come from their checkpoints.
func TestStatesOfManyProjectionsOfAnotherNode(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		release := make(chan struct{})
		slow := millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		tenants := b.Tenants(13)
		rt := b.Another(quickBeats, append(b.Recorders("live"), millrace.Projection{Name: "slow", Handler: slow})...)
		last := make(map[string]int64)
		for i, tenant := range tenants[1:] {
			last[tenant.Name()] = b.AppendTo(tenant, "a", 600+i)
		}
		stop := b.Start(rt)
		for tenant, head := range last {
			b.ReachesOf(rt, tenant, "live", head)
		}
		a := newAdmin(b)
		for state, name := range map[admin.State]string{admin.StateCatchUp: "slow", admin.StateLive: "live"} {
			b.Eventually(name+" is "+string(state)+" everywhere", func() bool {
				found := 0
				filter := admin.StatusFilter{States: []admin.State{state}, Limit: 5}
				for {
					status, err := a.Status(b.Ctx, filter)
					b.Must(err)
					for _, p := range status.Projections {
						filter.After = p.ID
						if p.ID.Tenant == projection.DefaultTenant {
							continue // it has no events
						}
						found++
						if p.ID.Name != name || p.State != state {
							return false
						}
					}
					if len(status.Projections) < filter.Limit {
						return found == len(last)
					}
				}
			})
		}
		close(release)
		stop()
	})
}
