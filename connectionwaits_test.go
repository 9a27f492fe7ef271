package millrace

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/observe"
)

// countedStore is a store of which only the waits are asked.
type countedStore struct {
	engine.Database
	waits atomic.Int64
	asked atomic.Int64
}

func (s *countedStore) ConnectionWaits() engine.ConnectionWaits {
	s.asked.Add(1)
	n := s.waits.Load()
	return engine.ConnectionWaits{Count: n, Duration: time.Duration(n) * time.Millisecond, GivenUp: n / 10}
}

func TestWaitsForConnectionsAreReportedEverySecondAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countedStore{}
		store.waits.Store(1000) // before the run
		var reported []observe.ConnectionWaits
		stop := reportWaits(store, func(w observe.ConnectionWaits) { reported = append(reported, w) })
		for _, n := range []int64{3, 0, 10, 0} {
			store.waits.Add(n)
			<-time.After(time.Second)
			synctest.Wait()
		}
		store.waits.Add(5)
		stop()
		want := []observe.ConnectionWaits{
			{Count: 3, Duration: 3 * time.Millisecond}, {Count: 10, Duration: 10 * time.Millisecond, GivenUp: 1},
			{Count: 5, Duration: 5 * time.Millisecond},
		}
		if !slices.Equal(reported, want) {
			t.Errorf("reported %+v, want %+v", reported, want)
		}
	})
}

func TestUnobservedWaitsCostNothing(t *testing.T) {
	t.Parallel()
	store := &countedStore{}
	reportWaits(store, nil)()
	if n := store.asked.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}
