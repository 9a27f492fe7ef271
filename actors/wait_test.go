package actors

import (
	"errors"
	"testing"

	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// The first of two partitions has streams that the first of four did not have.
func TestFormerPartitionDoesNotAnswerForANewOneOfItsNumber(t *testing.T) {
	r := newRegistry()
	at := func(partition, of int, position int64) {
		id := projection.ID{Tenant: "t", Name: "p", Partition: partition}
		r.began(id, 1, of)
		r.publish(id, func(e *ProjectionEntry) { e.Status = machine.Status{Position: position} })
	}
	whole := projection.ID{Tenant: "t", Name: "p"}
	at(1, 4, 100)
	at(2, 2, 100)
	if err, final := r.Reached(whole, 50); !final || !errors.Is(err, ErrNotHere) {
		t.Errorf("%v, final: %v", err, final)
	}
	first := projection.ID{Tenant: "t", Name: "p", Partition: 1}
	if r.ReachedBy(first, 2, 50) || !r.ReachedBy(first, 4, 50) || r.ReachedBy(first, 4, 101) {
		t.Error("partition 1 of 4 answers for partition 1 of 2")
	}
	at(1, 2, 100)
	if err, final := r.Reached(whole, 50); !final || err != nil {
		t.Errorf("%v, final: %v", err, final)
	}
}
