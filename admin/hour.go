package admin

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// minutesShown is how many minutes an hour has, although the clocks of nodes may differ.
const minutesShown = 60

// minuteSums add up series of several nodes, by minutes since 1970.
type minuteSums map[int64]Minute

func (m minuteSums) add(s engine.Series) {
	n := min(len(s.Applied), len(s.Behind), len(s.Lag)) // those of other versions may differ
	for i := range n {
		at := s.Last - int64(n-1-i)
		sum := m[at]
		sum.Applied, sum.Behind = sum.Applied+s.Applied[i], sum.Behind+s.Behind[i]
		sum.Lag = max(sum.Lag, time.Duration(s.Lag[i])*time.Second)
		m[at] = sum
	}
}

// list returns all minutes from the first to the last, without those that are older than an hour.
func (m minuteSums) list() []Minute {
	list := make([]Minute, 0, minutesShown)
	if len(m) == 0 {
		return list
	}
	last := slices.Max(slices.Collect(maps.Keys(m)))
	for at := max(last-minutesShown+1, slices.Min(slices.Collect(maps.Keys(m)))); at <= last; at++ {
		minute := m[at]
		minute.At = time.Unix(60*at, 0).UTC()
		list = append(list, minute)
	}
	return list
}

// addHours adds the last hour, as nodes report it.
func (s *Summary) addHours(nodes []engine.NodeRow) {
	all, worst := make(minuteSums), make(map[projection.ID]minuteSums)
	for _, n := range nodes {
		if n.Summary == nil || n.Summary.Hour == nil {
			continue
		}
		all.add(n.Summary.Hour.Series)
		for _, w := range n.Summary.Hour.Worst {
			if worst[w.ID] == nil {
				worst[w.ID] = make(minuteSums)
			}
			worst[w.ID].add(w.Series)
		}
	}
	s.Hour, s.Worst = all.list(), make([]ProjectionHour, 0, len(worst))
	for id, sums := range worst {
		s.Worst = append(s.Worst, ProjectionHour{ID: id, Minutes: sums.list()})
	}
	slices.SortFunc(s.Worst, func(a, b ProjectionHour) int {
		return cmp.Or(cmp.Compare(longest(b.Minutes), longest(a.Minutes)), engine.CompareIDs(a.ID, b.ID))
	})
}

func longest(minutes []Minute) (lag time.Duration) {
	for _, m := range minutes {
		lag = max(lag, m.Lag)
	}
	return lag
}
