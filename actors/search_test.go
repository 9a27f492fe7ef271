package actors

import "testing"

func TestOwnedLeasesAreReadSeldomByANodeThatHasJustClaimedMany(t *testing.T) {
	s := search{resync: resyncEvery}
	if s.resyncLater(100 * resyncLeases); s.resync != 100 {
		t.Errorf("the leases are read after %d searches, want 100", s.resync)
	}
	if s.resyncLater(resyncLeases); s.resync != 100 {
		t.Errorf("a smaller claim changed that to %d", s.resync)
	}
	s.resync = 0
	if s.resyncLater(100 * resyncLeases); s.resync != 0 {
		t.Error("a read that is due was put off")
	}
}
