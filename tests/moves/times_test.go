package moves_test

import (
	"math"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
)

// timesOf returns the times of a tenant's events.
func (p *place) timesOf(t testing.TB, tenant string) (times []time.Time) {
	t.Helper()
	for e, err := range p.tenant(t, tenant).(event.Reader).ReadAll(testContext(t), event.ReadOptions{}) {
		noError(t, err)
		times = append(times, e.Time)
	}
	return times
}

// mustHaveTimes fails unless the events of a tenant have these times.
func (p *place) mustHaveTimes(t testing.TB, tenant string, want []time.Time) {
	t.Helper()
	got := p.timesOf(t, tenant)
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i, at := range got {
		if !at.Equal(want[i]) {
			t.Errorf("event %d: %v, want %v", i, at, want[i])
		}
	}
}

// Times far from 1970 keep their microseconds.
func TestMovedEventsKeepTheMicrosecondsOfTheirTimes(t *testing.T) {
	t.Parallel()
	var times []time.Time
	for year := 1; year < 9999; year += 357 {
		times = append(times, time.Date(year, time.March, 4, 5, 6, 7, 123_457_000, time.UTC))
	}
	times = append(times, time.Date(1, time.January, 1, 0, 0, 0, 1000, time.UTC),
		time.Date(9999, time.December, 30, 23, 59, 59, 999_999_000, time.UTC))
	onAllDirections(t, func(t *testing.T, from, to *place) {
		acme := from.create(t, "acme")
		for _, at := range times {
			e := happened
			e.Time = at
			must(acme.Append(testContext(t), "s", event.Any, e))(t)
		}
		from.mustHaveTimes(t, "acme", times)
		moveIt(t, from, to, "acme", admin.MoveOptions{})
		to.mustHaveTimes(t, "acme", times)
	})
}

// Another program may insert any time that PostgreSQL knows, also infinity. The target has what readers got.
func TestMovedEventsHaveTheTimesThatReadersGot(t *testing.T) {
	t.Parallel()
	for name, newTarget := range map[string]func(testing.TB) *place{"file": newFile, "PostgreSQL": newDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := newDatabase(t), newTarget(t)
			from.create(t, "acme")
			from.exec(t, `insert into {acme}.streams (stream_id, version) values ('s', 5)`)
			from.exec(t, `insert into {acme}.events (stream_id, stream_version, type, body, created_at)
				select 's', n, 'T', '{}', at::timestamptz
				  from unnest(array['infinity', '-infinity', '4713-01-01 BC', '294276-12-31', '2026-01-02 03:04:05.678901+00'])
				       with ordinality as e (at, n) order by n`)
			want := from.timesOf(t, "acme")
			moveIt(t, from, to, "acme", admin.MoveOptions{})
			to.mustHaveTimes(t, "acme", want)
		})
	}
}

// Earlier builds kept any time in a file.
func TestMovedEventsOfAFileHaveTheTimesThatReadersGot(t *testing.T) {
	t.Parallel()
	for name, newTarget := range map[string]func(testing.TB) *place{"file": newFile, "PostgreSQL": newDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := newFile(t), newTarget(t)
			acme := from.create(t, "acme")
			for _, micros := range []int64{
				math.MinInt64, -300_000_000_000_000_000, 300_000_000_000_000_000, math.MaxInt64,
			} {
				last := must(acme.Append(testContext(t), "s", event.Any, happened))(t).Last()
				from.exec(t, `update millrace_events set created_at = ?1, checksum = millrace_checksum(id, version, ?1, stream_id,
					type, body, headers, causation_id, correlation_id) where position = ?2`, micros, last)
			}
			want := from.timesOf(t, "acme")
			moveIt(t, from, to, "acme", admin.MoveOptions{})
			to.mustHaveTimes(t, "acme", want)
		})
	}
}
