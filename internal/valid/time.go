package valid

import "time"

var (
	earliest = time.Time{}
	latest   = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)
)

// Time returns t in UTC, or the nearest time from year 1 to the last day of 9999, whose text JSON has in every time
// zone.
func Time(t time.Time) time.Time {
	t = t.UTC()
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	}
	return t
}
