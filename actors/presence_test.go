package actors

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
)

// The server lets others claim a whole lease time after a heartbeat arrived, which is after it was sent.
func TestNodeStopsTrustingItsLeasesBeforeOthersMayClaimThem(t *testing.T) {
	deps := &Deps{System: NewSystem(zap.NewNop()), Node: engine.Node{LeaseDuration: time.Minute}}
	deps.Init()
	for silent, trusted := range map[time.Duration]bool{0: true, 50 * time.Second: true, 55 * time.Second: false, time.Minute: false, time.Hour: false} {
		deps.Registry.publishSession(func(e *SessionEntry) { e.HeartbeatSent = time.Now().Add(-silent) })
		if deps.leasesConfirmed() != trusted {
			t.Errorf("silent for %v: trusted %v", silent, !trusted)
		}
	}
}

// While the session is lost others may take the node for dead, whatever its last heartbeat was.
func TestTrustEndsWithTheSessionAndGrowsWithEachHeartbeat(t *testing.T) {
	deps := &Deps{System: NewSystem(zap.NewNop()), Node: engine.Node{LeaseDuration: time.Minute}}
	deps.Init()
	told := func(changed <-chan struct{}) bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	beat := time.Now()
	for _, step := range []struct {
		name   string
		change func(*SessionEntry)
		want   time.Time
	}{
		{"the session stands", func(e *SessionEntry) { e.Connected, e.HeartbeatSent = true, beat }, beat.Add(54 * time.Second)},
		{"a heartbeat", func(e *SessionEntry) { e.HeartbeatSent = beat.Add(time.Second) }, beat.Add(55 * time.Second)},
		{"the session is lost", func(e *SessionEntry) { e.Connected = false }, time.Time{}},
		{"it stands again", func(e *SessionEntry) { e.Connected, e.HeartbeatSent = true, beat.Add(2*time.Second) }, beat.Add(56 * time.Second)},
	} {
		_, before := deps.DeliveryDeadline()
		if told(before) {
			t.Errorf("%s: told of nothing", step.name)
		}
		deps.Registry.publishSession(step.change)
		if until, changed := deps.DeliveryDeadline(); !until.Equal(step.want) || !told(before) || told(changed) {
			t.Errorf("%s: until %v, want %v; told: %v", step.name, until, step.want, told(before))
		}
	}
}
