package actors

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// series returns a series that ends with these minutes.
func series(last int64, minutes ...[3]int64) (s engine.Series) {
	s.Last = last
	for _, m := range minutes {
		s.Applied, s.Behind, s.Lag = append(s.Applied, m[0]), append(s.Behind, m[1]), append(s.Lag, m[2])
	}
	return s
}

func equalSeries(a, b engine.Series) bool {
	return a.Last == b.Last && slices.Equal(a.Applied, b.Applied) && slices.Equal(a.Behind, b.Behind) &&
		slices.Equal(a.Lag, b.Lag)
}

func TestHourHasTheMinutesThatEnded(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	id, other := projection.ID{Tenant: "t", Name: "p"}, projection.ID{Tenant: "u", Name: "p"}
	const first = 1000
	begin := func(minute int64) time.Time { return time.Unix(60*minute, 0) }
	at := func(id projection.ID, applied, position, mark int64, oldest time.Time) {
		r.publish(id, func(e *ProjectionEntry) {
			e.Status = machine.Status{Phase: machine.CatchUp, Position: position, Mark: mark, Oldest: oldest}
			e.Applied += applied
		})
	}
	r.sample(begin(first))
	if hour := r.Summary().Hour; hour != nil {
		t.Errorf("nothing happened yet: %+v", hour)
	}
	at(id, 10, 10, 50, begin(first))
	at(other, 5, 5, 5, time.Time{})
	r.sample(begin(first).Add(59 * time.Second))
	if hour := r.Summary().Hour; hour != nil {
		t.Errorf("no minute has ended: %+v", hour)
	}
	r.sample(begin(first + 1))
	at(id, 3, 13, 53, begin(first))
	r.sample(begin(first + 2))
	at(id, 40, 53, 53, time.Time{})
	r.sample(begin(first + 5)) // the node could not send a heartbeat for two minutes
	want := engine.Hour{Series: series(first+4, [3]int64{15, 40, 60}, [3]int64{3, 40, 120}, [3]int64{40, 0, 0},
		[3]int64{}, [3]int64{}),
		Worst: []engine.ProjectionSeries{
			{
				ID: id, Series: series(first+4, [3]int64{0, 40, 60},
					[3]int64{3, 40, 120}, [3]int64{40, 0, 0}, [3]int64{}, [3]int64{}),
			},
		}}
	got := r.Summary().Hour
	if got == nil || !equalSeries(got.Series, want.Series) || len(got.Worst) != 1 || got.Worst[0].ID != id ||
		!equalSeries(got.Worst[0].Series, want.Worst[0].Series) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for minute := range int64(minutesKept + 1) {
		r.sample(begin(first + 6 + minute))
	}
	if hour := r.Summary().Hour; hour != nil {
		t.Errorf("after an hour without work: %+v", hour)
	}
}

// A heartbeat may write the hour of each node every second.
func TestHourIsSmallWhateverLags(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	now := time.Unix(1_800_000_000, 0)
	for minute := range 3 * minutesKept {
		for i := range 2000 {
			r.publish(projection.ID{Tenant: fmt.Sprint("t", i/10), Name: fmt.Sprint("p", i%10)},
				func(e *ProjectionEntry) {
					e.Status = machine.Status{
						Phase: machine.CatchUp, Mark: 99_999, Oldest: now.Add(-time.Duration(minute*i) * time.Second),
					}
					e.Applied++
				})
		}
		r.sample(now.Add(time.Duration(minute) * time.Minute))
	}
	summary := r.Summary()
	if len(summary.Hour.Worst) != engine.MaxWorst || len(r.hour.worst) != engine.MaxWorst ||
		summary.Hour.Worst[0].ID != (projection.ID{Tenant: "t199", Name: "p9"}) {
		t.Errorf("the worst are %+v", summary.Hour.Worst)
	}
	with, err := summary.Encode()
	if err != nil {
		t.Fatal(err)
	}
	hour := summary.Hour
	summary.Hour = nil
	without, err := summary.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if took := len(with) - len(without); took > 6000 {
		t.Errorf("the hour takes %d bytes", took)
	}
	if read := engine.DecodeSummary([]byte(with)); read == nil || !equalSeries(read.Hour.Series, hour.Series) ||
		read.Hour.Worst[0].ID != hour.Worst[0].ID {
		t.Errorf("%+v", read)
	}
}
