package projection_test

import (
	"errors"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func TestLeaseIsLostWithItsOwnerEpochRowAndProjection(t *testing.T) {
	held := engine.Lease{Row: 7, ID: projection.ID{Tenant: "a", Name: "p"}, Owner: "node", Epoch: 3, Checkpoint: 5}
	later := held
	later.Checkpoint, later.Incarnation = 9, 1
	if err := held.Check(later, true); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(l *engine.Lease){
		"owner":      func(l *engine.Lease) { l.Owner = "other" },
		"epoch":      func(l *engine.Lease) { l.Epoch = 4 },
		"projection": func(l *engine.Lease) { l.ID.Name = "q" },
		"tenant":     func(l *engine.Lease) { l.ID.Tenant = "b" },
	} {
		now := later
		change(&now)
		if !errors.Is(held.Check(now, true), projection.ErrLeaseLost) {
			t.Errorf("another %s: not lost", name)
		}
	}
	if !errors.Is(held.Check(engine.Lease{}, false), projection.ErrLeaseLost) {
		t.Error("a row that is gone: not lost")
	}
}
