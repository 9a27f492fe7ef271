package deadletters

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
)

// AllStates are the states of dead letters.
var AllStates = []projection.DeadLetterState{
	projection.DeadLetterParked, projection.DeadLetterReplaying, projection.DeadLetterResolved,
	projection.DeadLetterDiscarded,
}

// selected checks a filter and states. It returns the states, or the default without any.
func selected(filter projection.DeadLetterFilter, states []projection.DeadLetterState) ([]projection.DeadLetterState,
	error) {
	if err := errors.Join(valid.Text("Stream", filter.Stream), valid.Text("Type", filter.Type),
		valid.Text("Error", filter.Error)); err != nil {
		return nil, err
	}
	if filter.OutOfOrder {
		return nil, errors.New("DeadLetterFilter.OutOfOrder is for Replay alone")
	}
	if some := filter; filter.All {
		some.All = false
		if !selectsNothing(some) {
			return nil, errors.New("DeadLetterFilter.All must not be set with other fields")
		}
	}
	if len(states) == 0 {
		return []projection.DeadLetterState{projection.DeadLetterParked, projection.DeadLetterReplaying}, nil
	}
	for _, state := range states {
		if !slices.Contains(AllStates, state) {
			return nil, fmt.Errorf("unknown state %s", excerpt.Quoted(string(state)))
		}
	}
	return states, nil
}

// bounded checks the filter and the limit of an operation that changes dead letters.
func bounded(filter projection.DeadLetterFilter, limit int) error {
	switch {
	case limit < 1:
		return fmt.Errorf("limit must be at least 1: %d", limit)
	case selectsNothing(filter):
		return errors.New("the filter must not be empty: set All to select all")
	}
	_, err := selected(filter, nil)
	return err
}

// selectsNothing reports whether no field of a filter is set.
func selectsNothing(f projection.DeadLetterFilter) bool {
	return !f.All && len(f.IDs) == 0 && f.Stream == "" && f.Type == "" && f.Error == ""
}
