package tests_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// timed returns events with these times.
func timed(times ...time.Time) []event.Event {
	events := kit.SomeEvents(len(times))
	for i := range events {
		events[i].Time = times[i]
	}
	return events
}

var (
	oldTime    = time.Date(2017, time.January, 9, 8, 49, 50, 123456000, time.UTC)
	futureTime = time.Date(2300, time.January, 1, 0, 0, 0, 0, time.UTC)
)

// Events get the times of their append, or of the clock, by all ways of appending. Handlers and readers see them.
func TestEventsKeepTheTimesOfTheirAppend(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		earliest, latest := time.Date(1, time.January, 1, 0, 0, 0, 1000, time.UTC),
			time.Date(9999, time.December, 30, 23, 59, 59, 999999000, time.UTC)
		before := time.Now().Add(-time.Minute)
		want := []time.Time{oldTime, {}, earliest, latest, futureTime, oldTime, {}, oldTime, oldTime, futureTime}
		zone := time.FixedZone("", 5*3600)
		b.MustAppend(b.Store, "s", event.NoStream,
			timed(oldTime.In(zone), time.Time{}, earliest, latest, futureTime)...)
		for range 2 { // the second one is a repeat
			b.MustAppend(b.Store, "s", event.Exact(5).WithKey("k"),
				timed(oldTime.Add(999*time.Nanosecond), time.Time{})...)
		}
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			_, err := b.Store.AppendTx(ctx, tx, "s", event.Any, timed(oldTime)...)
			return err
		}))
		b.MustAppend(b.Store, "s", event.Exact(8), timed(oldTime)...)
		b.MustAppend(b.Store, "s", event.Any.WithKey("l"), timed(futureTime)...)
		var handled []event.Envelope
		b.Idle(millrace.Projection{Name: "p",
			Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
				handled = append(handled, e)
				return nil
			})})
		for how, events := range map[string][]event.Envelope{"stream": b.Collect(b.Store.ReadStream(b.Ctx, "s", 1)),
			"all": b.All(b.Store), "handled": handled} {
			if len(events) != len(want) {
				t.Fatalf("%s: %d events", how, len(events))
			}
			for i, e := range events {
				if want[i].IsZero() && (e.Time.Before(before) || e.Time.After(time.Now().Add(time.Minute))) ||
					!want[i].IsZero() && !e.Time.Equal(want[i]) {
					t.Errorf("%s, version %d: %v, want %v", how, i+1, e.Time, want[i])
				}
			}
		}
		s, err := b.Store.Stream(b.Ctx, "s")
		b.Must(err)
		if !s.Created.Equal(oldTime) || !s.LastEvent.Equal(futureTime) {
			t.Errorf("%+v", s)
		}
	})
}

func TestTimesThatAStoreCannotKeepAreRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		for _, year := range []int{0, -4800, 10_000, 300_000} {
			_, err := b.Store.Append(b.Ctx, "s", event.Any,
				timed(oldTime, time.Date(year, time.June, 1, 0, 0, 0, 0, time.UTC))...)
			if err == nil || !strings.Contains(err.Error(), "event 1: event time is not from year 1 to 9999") {
				t.Errorf("year %d: %v", year, err)
			}
		}
		b.MustHave(0)
	})
}

// The lag is the age of an event by its time, and 0 while that is in the future. A projection that begins at a time
// begins at the first position whose event has it.
func TestLagAndStartsFollowTheTimesOfEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		appended := b.MustAppend(b.Store, "s", event.Any, timed(oldTime, futureTime, oldTime)...)
		release := make(chan struct{})
		later := millrace.Projection{
			Name: "later", Handler: b.Store.Batch(kit.Record("later")),
			Start: projection.Start{Time: oldTime.Add(time.Hour)}, MaxEvents: 1,
		}
		config := quickBeats
		config.MaxBatches = 3 // one delivery must not wait for another
		q := blockedAfter("q", 1, release)
		q.MaxEvents = 1 // its checkpoint is that of the first event while the second one is delivered
		rt := b.Running(config, blockedAfter("p", 0, release), q, later)
		b.Reaches(rt, "q", appended.Positions[0])
		b.Reaches(rt, "later", appended.Positions[2])
		if got := b.Positions("later"); !slices.Equal(got, appended.Positions[1:]) {
			t.Errorf("it began at %v", got)
		}
		if p := elsewhere(b, newAdmin(b), "p"); p.Lag < time.Since(oldTime)-time.Minute ||
			p.Lag > time.Since(oldTime)+time.Minute {
			t.Errorf("it lags by %v at an event of 2017", p.Lag)
		}
		if q := elsewhere(b, newAdmin(b), "q"); q.Lag != 0 || q.Behind == 0 {
			t.Errorf("it lags by %v at an event of the future", q.Lag)
		}
		close(release)
	})
}

// A file stores the beginning of 1970 as 0, and an event may have the zero time of Go. Neither means that the time is
// unknown.
func TestTimesThatLookLikeNoneAreThoseOfEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var want []string
		for _, c := range []struct {
			tenant     string
			given, got time.Time
		}{
			{"year 1", time.Time{}.Add(time.Nanosecond), time.Time{}},
			{"1970", time.Unix(0, 0), time.Unix(0, 0)},
			{"2017", oldTime, oldTime},
		} {
			tenant, err := b.Store.CreateTenant(b.Ctx, c.tenant)
			b.Must(err)
			b.Idle(millrace.Projection{Name: "p", Tenants: []string{c.tenant}, Handler: b.Store.Batch(kit.Nothing)})
			b.MustAppend(tenant, "s", event.Any, timed(c.given)...)
			s, err := tenant.Stream(b.Ctx, "s")
			b.Must(err)
			if !s.Created.Equal(c.got) || !s.LastEvent.Equal(c.got) {
				t.Errorf("%+v, want %v", s, c.got)
			}
			want = append(want, c.tenant)
		}
		status, err := newAdmin(b).Status(b.Ctx, admin.StatusFilter{Sort: admin.SortByLag})
		b.Must(err)
		var got []string
		for _, p := range status.Projections {
			if age := time.Since(oldTime) - time.Minute; p.Lag < age {
				t.Errorf("%v lags by %v", p.ID, p.Lag)
			}
			got = append(got, p.ID.Tenant)
		}
		if !slices.Equal(got, want) {
			t.Errorf("those that lag most are %q, want %q", got, want)
		}
	})
}
