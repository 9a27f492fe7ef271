package admin

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func TestHoursOfNodesAddUp(t *testing.T) {
	t.Parallel()
	const last = 30_000_000
	series := func(last int64, applied, behind, lag []int64) engine.Series {
		return engine.Series{Last: last, Applied: applied, Behind: behind, Lag: lag}
	}
	id, other := projection.ID{Tenant: "t", Name: "p"}, projection.ID{Tenant: "t", Name: "q"}
	node := func(h *engine.Hour) engine.NodeRow {
		return engine.NodeRow{Alive: true, Summary: &engine.NodeSummary{Hour: h}}
	}
	ends := engine.NodeRow{Summary: &engine.NodeSummary{Hour: &engine.Hour{Series: series(last-1, []int64{5},
		[]int64{50}, []int64{90}),
		Worst: []engine.ProjectionSeries{{ID: id, Series: series(last-1, []int64{0}, []int64{50}, []int64{90})}}}}}
	var s Summary
	// an old node, one without work, and a dead one whose lease went to the next
	s.addHours([]engine.NodeRow{{Alive: true}, node(nil), ends,
		node(&engine.Hour{Series: series(last, []int64{7, 8, 9}, []int64{1, 60, 70}, []int64{0, 10, 150}),
			Worst: []engine.ProjectionSeries{
				{ID: other, Series: series(last, []int64{1}, []int64{2}, []int64{120})},
				{ID: id, Series: series(last, []int64{3}, []int64{70}, []int64{150})},
			}}),
		// of a version that does it in another way
		node(&engine.Hour{Series: series(last, []int64{1, 2, 3}, []int64{4}, nil)}),
	})
	minute := func(at, applied, behind int64, lag time.Duration) Minute {
		return Minute{At: time.Unix(60*at, 0).UTC(), Applied: applied, Behind: behind, Lag: lag * time.Second}
	}
	if want := []Minute{minute(last-2, 7, 1, 0), minute(last-1, 13, 110, 90),
		minute(last, 9, 70, 150)}; !slices.Equal(s.Hour, want) {
		t.Errorf("%+v, want %+v", s.Hour, want)
	}
	if len(s.Worst) != 2 || s.Worst[0].ID != id ||
		!slices.Equal(s.Worst[0].Minutes, []Minute{minute(last-1, 0, 50, 90), minute(last, 3, 70, 150)}) ||
		s.Worst[1].ID != other {
		t.Errorf("the worst are %+v", s.Worst)
	}
	var long Summary
	zeros := make([]int64, 60)
	zeros[0] = 1
	long.addHours([]engine.NodeRow{
		node(&engine.Hour{Series: series(last, zeros, zeros, zeros)}),
		node(&engine.Hour{Series: series(last-5, zeros, zeros, zeros)}),
	})
	if len(long.Hour) != 60 || long.Hour[0].At != time.Unix(60*(last-59), 0).UTC() {
		t.Errorf("%d minutes from %v", len(long.Hour), long.Hour[0].At)
	}
}
