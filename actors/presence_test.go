package actors

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
)

// Other nodes may claim the leases one LeaseDuration after a heartbeat arrived, which is after it was sent.
func TestLeaseDeadlineIsBeforeOtherNodesMayClaim(t *testing.T) {
	deps := &Deps{System: NewSystem(zap.NewNop()), Node: engine.Node{LeaseDuration: time.Minute}}
	deps.Init()
	for silent, want := range map[time.Duration]bool{0: true, 50 * time.Second: true, 55 * time.Second: false,
		time.Minute: false, time.Hour: false} {
		deps.Registry.session.publish(func(e *SessionEntry) { e.HeartbeatSent = time.Now().Add(-silent) })
		if got := deps.leasesConfirmed(); got != want {
			t.Errorf("silent for %v: leases confirmed: %v", silent, got)
		}
	}
}

// While the session is lost, other nodes may mark this node dead, even if its last heartbeat is recent.
func TestDeliveryDeadlineEndsWithTheSessionAndGrowsWithEachHeartbeat(t *testing.T) {
	deps := &Deps{System: NewSystem(zap.NewNop()), Node: engine.Node{LeaseDuration: time.Minute}}
	deps.Init()
	closed := func(changed <-chan struct{}) bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	sent := time.Now()
	for _, step := range []struct {
		name   string
		change func(*SessionEntry)
		want   time.Time
	}{
		{
			"the session is up", func(e *SessionEntry) { e.Connected, e.HeartbeatSent = true, sent },
			sent.Add(54 * time.Second),
		},
		{"a heartbeat", func(e *SessionEntry) { e.HeartbeatSent = sent.Add(time.Second) }, sent.Add(55 * time.Second)},
		{"the session is lost", func(e *SessionEntry) { e.Connected = false }, time.Time{}},
		{
			"it is up again", func(e *SessionEntry) { e.Connected, e.HeartbeatSent = true, sent.Add(2*time.Second) },
			sent.Add(56 * time.Second),
		},
	} {
		_, before := deps.DeliveryDeadline()
		if closed(before) {
			t.Errorf("%s: a change before it", step.name)
		}
		deps.Registry.session.publish(step.change)
		if until, changed := deps.DeliveryDeadline(); !until.Equal(step.want) || !closed(before) || closed(changed) {
			t.Errorf("%s: until %v, want %v; changed: %v", step.name, until, step.want, closed(before))
		}
	}
}
