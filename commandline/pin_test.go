package commandline

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

// parked has dead letters at the positions from 1 to last, whose ids are the negative positions.
type parked struct {
	projection.DeadLetters
	last int64
}

func (p parked) List(_ context.Context, page projection.DeadLetterPage) (letters []projection.DeadLetter, _ error) {
	for at := page.After + 1; at <= p.last && len(letters) < page.Limit; at++ {
		letters = append(letters, projection.DeadLetter{ID: -at, Position: at})
	}
	return letters, nil
}

func TestPinReadsEachPageOnceUpToItsLimit(t *testing.T) {
	t.Parallel()
	for _, last := range []int{0, 1, 999, 1000, 1001, 2000, 2500} {
		for _, limit := range []int{1, 999, 1000, 1001, 2000, math.MaxInt32} {
			l := letterCommand{limit: limit}
			var want []int64
			for at := range min(last, limit) {
				want = append(want, -int64(at+1))
			}
			if ids, err := l.pin(t.Context(), parked{last: int64(last)}); err != nil || !slices.Equal(ids, want) {
				t.Errorf("%d ids of %d parked events with the limit %d: %v", len(ids), last, limit, err)
			}
		}
	}
}
