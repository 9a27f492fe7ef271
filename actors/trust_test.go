package actors

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/projection"
)

// The server lets others claim a whole lease time after a heartbeat arrived, which is after it was sent.
func TestNodeStopsTrustingItsLeasesBeforeOthersMayClaimThem(t *testing.T) {
	env := &Env{System: NewSystem(zap.NewNop()), Node: projection.Node{LeaseTime: time.Minute}}
	env.Live()
	for silent, trusted := range map[time.Duration]bool{0: true, 50 * time.Second: true, 55 * time.Second: false, time.Minute: false, time.Hour: false} {
		env.Board.publishSession(func(e *SessionEntry) { e.LastBeat = time.Now().Add(-silent) })
		if env.Trusted() != trusted {
			t.Errorf("silent for %v: trusted %v", silent, !trusted)
		}
	}
}
