package actors

import (
	"errors"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

// What a projection has reached counts neither after it was drained nor after a reset, until it begins again.
func TestWaitForIgnoresWhatAnEarlierLeaseReached(t *testing.T) {
	r := newRegistry()
	id := projection.ID{Tenant: "t", Name: "p"}
	begin := func(epoch int64) {
		r.began(id, epoch, 1)
		r.publish(id, func(e *ProjectionEntry) { e.Position = 5 })
		if err, final := r.Reached(id, 5); err != nil || !final {
			t.Errorf("under epoch %d: %v, %v", epoch, err, final)
		}
	}
	absent := func(what string) {
		if err, final := r.Reached(id, 5); !errors.Is(err, ErrNotHere) || !final {
			t.Errorf("%s: %v, %v", what, err, final)
		}
	}
	begin(3)
	r.drained(id)
	absent("after the drain")
	begin(4)
	r.Outdate(id, 5)
	absent("after the reset")
	if _, here := r.Get(id); here {
		t.Error("after the reset, the entry is there")
	}
	begin(6)
}
