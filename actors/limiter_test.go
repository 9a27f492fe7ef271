package actors

import (
	"context"
	"testing"
	"testing/synctest"
)

// gets reports whether a delivery has its slot once everything rests.
func gets(s *Limiter, ctx context.Context, tenant string, long bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	got := make(chan bool, 1)
	go func() {
		slot := s.delivery
		if long {
			slot = s.longDelivery
		}
		_, err := slot(ctx, tenant)
		got <- err == nil
	}()
	synctest.Wait()
	cancel()
	return <-got
}

// Of 8 slots a tenant has at most 4. Slow deliveries share 4, and those of one tenant have at most 2 of these.
func TestDeliverySlotsAreSharedFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewLimiter(4, 0, 0, 8)
		s.Serve(5)
		for i, slot := range []struct {
			tenant     string
			long, gets bool
		}{
			{"a", true, true}, {"a", true, true}, {"a", true, false}, {"a", false, true}, {"a", false, true}, {"a", false, false},
			{"b", true, true}, {"b", true, true}, {"b", true, false}, {"c", true, false},
			{"c", false, true}, {"d", false, true}, {"e", false, false},
		} {
			if got := gets(s, t.Context(), slot.tenant, slot.long); got != slot.gets {
				t.Errorf("slot %d, %+v: got %v", i, slot, got)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := NewLimiter(4, 0, 0, 8)
		s.Serve(1)
		for i := range 10 {
			if got := gets(s, t.Context(), "a", true); got != (i < 4) {
				t.Errorf("long slot %d of a single tenant: got %v", i, got)
			}
		}
		for i := range 5 {
			if got := gets(s, t.Context(), "a", false); got != (i < 4) {
				t.Errorf("slot %d of a single tenant: got %v", i, got)
			}
		}
	})
}
