package actors

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

func TestAnswersToRequestsForLeases(t *testing.T) {
	t.Parallel()
	lease := func(row int32, epoch int64) engine.Lease {
		return engine.Lease{Row: row, Epoch: epoch, Owner: "a", ID: projection.ID{Tenant: "t", Name: "p"}}
	}
	var requests []leaseRequest
	for row := range int32(3) {
		requests = append(requests, leaseRequest{nil, &messages.LeaseRequest{Lease: lease(row, 1), Op: int(row) + 10}})
	}
	// Row 0 is the projection's, another node claimed 1, and 2 does not exist any more.
	answers, gone := answersTo(requests, []engine.Lease{lease(1, 2), lease(0, 1)})
	if !slices.Equal(gone, []string{"t"}) {
		t.Errorf("the rows of %q are gone", gone)
	}
	for i, lost := range []bool{false, true, true} {
		if a := answers[i]; a.Op != i+10 || errors.Is(a.Err, projection.ErrLeaseLost) != lost {
			t.Errorf("answer %d: %+v", i, a)
		}
	}
	if got := answers[0].Lease; got.Row != 0 || got.Epoch != 1 {
		t.Errorf("the lease is %+v", got)
	}
}
