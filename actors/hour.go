package actors

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

const (
	// minutesKept is how many minutes a node remembers.
	minutesKept = 60
	// worstAge is how long an event waits at least for a projection whose minutes are kept.
	worstAge = time.Minute
)

// minute has the figures of one minute. at counts minutes since 1970. It is zero if nothing is known.
type minute struct {
	at int64
	// applied counts the events that were handled in it. behind and lag are how far projections were behind at its end,
	// in positions and in seconds.
	applied, behind, lag int64
}

// minutes has the last minutes, each at the place of its number.
type minutes [minutesKept]minute

func (m *minutes) put(now minute) { m[now.at%minutesKept] = now }

// series returns the minutes up to last, without zeros at the beginning.
func (m *minutes) series(last int64) (s engine.Series) {
	for at := last - minutesKept + 1; at <= last; at++ {
		now := m[at%minutesKept]
		if now.at != at {
			now = minute{}
		}
		if len(s.Behind) > 0 || now.applied+now.behind+now.lag > 0 {
			s.Applied, s.Behind, s.Lag = append(s.Applied, now.applied), append(s.Behind, now.behind),
				append(s.Lag, now.lag)
		}
	}
	if len(s.Behind) > 0 {
		s.Last = last
	}
	return s
}

// hour has the figures of the last hour: of all projections together, and of those few that were the furthest behind.
type hour struct {
	// sampled is the minute that goes on, 0 before the first sample. applied counts the events that were handled in it.
	sampled, applied int64
	all              minutes
	worst            []*tracked
}

// tracked is a projection whose minutes are kept. applied is what its entry counted when the last minute ended.
type tracked struct {
	id      projection.ID
	applied int64
	minutes
}

// sample ends the minute that went on if a new one has begun. It visits the projections that are behind, and delays
// none of them for long.
func (r *Registry) sample(now time.Time) {
	at := now.Unix() / 60
	r.mu.Lock()
	ended := r.hour.sampled
	if ended == 0 {
		r.hour.sampled = at
	}
	turned := ended != 0 && ended != at
	var behind []*registered
	if turned {
		for _, t := range r.overview.lagging {
			behind = append(behind, t.projections...)
		}
	}
	r.mu.Unlock()
	if !turned {
		return
	}
	total := minute{at: ended}
	var worst []waits
	for some := range slices.Chunk(behind, figuresAtOnce) {
		r.mu.Lock()
		for _, p := range some {
			w := r.waits(p, now)
			total.behind, total.lag = total.behind+p.behind(), max(total.lag, int64(w.age/time.Second))
			if w.age >= worstAge {
				worst = append(worst, w)
			}
		}
		r.mu.Unlock()
	}
	slices.SortFunc(worst, func(a,
		b waits) int {
		return cmp.Or(cmp.Compare(b.age, a.age), engine.CompareIDs(a.id, b.id))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.hour
	total.applied, h.applied = h.applied, 0
	h.all.put(total)
	r.track(worst[:min(engine.MaxWorst, len(worst))], ended, now)
	h.sampled = at
}

// waits is for how long an event has waited for a projection.
type waits struct {
	id  projection.ID
	age time.Duration
}

// waits returns for how long the first event has waited for a projection. If its events cannot be read, it is the time
// since which it does not move.
func (r *Registry) waits(p *registered, now time.Time) waits {
	w := waits{id: p.id}
	switch {
	case p.behind() == 0:
	case !p.Oldest.IsZero():
		w.age = max(0, now.Sub(p.Oldest))
	case p.standing.since > 0:
		w.age = max(0, now.Sub(r.made.Add(p.standing.since)))
	}
	return w
}

// track adds a minute to the projections that are tracked and to those that wait the longest now. Of these it keeps
// those that had the longest lags within the hour.
func (r *Registry) track(longest []waits, ended int64, now time.Time) {
	h := &r.hour
	for _, w := range longest {
		p, is := r.projections[w.id], func(t *tracked) bool { return t.id == w.id }
		if p != nil && !slices.ContainsFunc(h.worst, is) {
			h.worst = append(h.worst, &tracked{id: w.id, applied: p.Applied})
		}
	}
	peaks := make(map[*tracked]int64, len(h.worst))
	for _, t := range h.worst {
		p := r.projections[t.id]
		if p == nil {
			p = &registered{} // its tenant is gone
		}
		t.put(minute{
			at: ended, applied: max(0, p.Applied-t.applied), behind: p.behind(),
			lag: int64(r.waits(p, now).age / time.Second),
		})
		t.applied = p.Applied
		if lags := t.series(ended).Lag; len(lags) > 0 {
			peaks[t] = slices.Max(lags)
		}
	}
	h.worst = slices.DeleteFunc(h.worst, func(t *tracked) bool { return peaks[t] == 0 })
	slices.SortStableFunc(h.worst, func(a, b *tracked) int { return cmp.Compare(peaks[b], peaks[a]) })
	if len(h.worst) > engine.MaxWorst {
		clear(h.worst[engine.MaxWorst:])
		h.worst = h.worst[:engine.MaxWorst]
	}
}

// summary returns the last hour, nil if nothing happened in it.
func (h *hour) summary() *engine.Hour {
	if h.sampled == 0 {
		return nil
	}
	last := h.sampled - 1
	s := &engine.Hour{Series: h.all.series(last)}
	for _, t := range h.worst {
		s.Worst = append(s.Worst, engine.ProjectionSeries{ID: t.id, Series: t.series(last)})
	}
	if s.Last == 0 && len(s.Worst) == 0 {
		return nil
	}
	return s
}
