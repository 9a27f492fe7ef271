package actors

import "testing"

func TestReadOfTheOwnedLeasesIsPutOffByClaims(t *testing.T) {
	var s search
	s.planResync(0) // a node that starts
	if s.resync != resyncEvery {
		t.Errorf("the leases are read after %d searches, want %d", s.resync, resyncEvery)
	}
	s.resyncLater(100 * resyncLeases)
	if want := resyncEvery + 100; s.resync != want {
		t.Errorf("after a claim, the leases are read after %d searches, want %d", s.resync, want)
	}
	// A claim in each search, as while tenants are created, does not put the read off for ever.
	left := s.resync
	for i := range left {
		s.resync--
		s.resyncLater(100*resyncLeases + i)
	}
	if s.resync != 0 {
		t.Errorf("the read is %d searches away after %d", s.resync, left)
	}
	s.resyncLater(200 * resyncLeases)
	if s.resync != 0 {
		t.Errorf("a claim has put off the read that is due to %d", s.resync)
	}
}
