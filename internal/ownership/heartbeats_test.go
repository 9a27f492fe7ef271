package ownership

import (
	"testing"
	"time"
)

func TestLateHeartbeatOfTheNodeMakesItDistrustOthers(t *testing.T) {
	const lease = 10 * time.Second
	for silent, want := range map[time.Duration]struct{ distrust, expired bool }{
		time.Second: {}, lease / 2: {}, lease/2 + 1: {distrust: true}, lease: {distrust: true},
		lease + 1: {distrust: true, expired: true},
	} {
		var h Heartbeats
		if h.Sent(now, now, lease) {
			t.Error("the first heartbeat expired another one")
		}
		at := now.Add(silent)
		answered := at.Add(time.Second)
		if expired := h.Sent(at, answered, lease); expired != want.expired {
			t.Errorf("after %v the previous heartbeat had expired: %v", silent, expired)
		}
		if h.Trusted(answered) == want.distrust || h.Trusted(answered.Add(lease)) == want.distrust {
			t.Errorf("after %v: trusts at once %v, a lease later %v", silent, h.Trusted(answered),
				h.Trusted(answered.Add(lease)))
		}
		if !h.Trusted(answered.Add(lease + 1)) {
			t.Errorf("after %v: never trusts again", silent)
		}
		if h.Sent(at.Add(time.Second), at.Add(time.Second), lease) {
			t.Errorf("after %v: the next heartbeat was late", silent)
		}
	}
}
