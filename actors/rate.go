package actors

import (
	"math"
	"time"
)

// rateWindow is the time constant of rates: older progress counts ever less.
const rateWindow = 10 * time.Second

// rate is a moving average of how fast a position rises. sum and weight decay together, so it is right from the
// beginning.
type rate struct {
	position    int64
	at          time.Time
	sum, weight float64
}

// begin forgets all progress up to position.
func (r *rate) begin(position int64, now time.Time) { *r = rate{position: position, at: now} }

// moved records the position at a time. A position that fell begins anew.
func (r *rate) moved(position int64, now time.Time) {
	if r.at.IsZero() || position < r.position {
		r.begin(position, now)
		return
	}
	r.sum, r.weight = r.decayed(position, now)
	r.position, r.at = position, now
}

// perSecond returns the rate now, in three digits: a summary that has it is written only when it changes.
func (r *rate) perSecond(now time.Time) float64 {
	if r.at.IsZero() {
		return 0
	}
	sum, weight := r.decayed(r.position, now)
	if weight <= 0 || sum/weight < 0.01 {
		return 0
	}
	perSecond := sum / weight
	scale := math.Pow(10, 2-math.Floor(math.Log10(perSecond)))
	return math.Round(perSecond*scale) / scale
}

// decayed returns sum and weight with the progress since the last record.
func (r *rate) decayed(position int64, now time.Time) (sum, weight float64) {
	passed := max(0, now.Sub(r.at).Seconds()) / rateWindow.Seconds()
	keep := math.Exp(-passed)
	progress := float64(position-r.position) / rateWindow.Seconds()
	if passed > 0 {
		progress *= (1 - keep) / passed
	}
	return r.sum*keep + progress, r.weight*keep + 1 - keep
}
