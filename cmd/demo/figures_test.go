package main

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
)

// someFigures returns figures in which one projection has parked events, and another has a failing event.
func someFigures() figures {
	f := newFigures(500)
	f.at, f.phase, f.appended = 3*time.Second, catchingUp, 400
	f.observe(admin.Status{Projections: []admin.ProjectionStatus{
		{
			ID: millrace.ProjectionID{Tenant: "default", Name: "events_by_type"}, State: admin.StateLive, Applied: 290,
			Behind: 7, Parked: 2, Reason: "parked before",
		},
		{ID: millrace.ProjectionID{Tenant: "default", Name: "streams"}, State: admin.StateCatchUp, FailingPosition: 12,
			Attempts: 3,
			Reason:   "projection default/streams: event at position 12, attempt 3: two\nlines"},
	}})
	f.measure(2*time.Second, 2900*time.Millisecond)
	return f
}

func TestFiguresInOneLine(t *testing.T) {
	t.Parallel()
	f := someFigures()
	want := "   3.0s catching up: appended 400 of 500, 200/s; events_by_type applied 290, behind 7, 100/s, parked 2; " +
		"events_by_role applied 0, behind 0, 0/s, parked 0; " +
		"streams applied 0, behind 0, 0/s, parked 0 (position 12, attempt 3: two; lines); " +
		"payments applied 0, behind 0, 0/s, parked 0"
	if got := f.line(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	f.news = "7 events parked"
	if got := f.line(); got != want+"; 7 events parked" {
		t.Errorf("got\n%s\nwant the news at the end", got)
	}
}

func TestTableFitsSixtyColumns(t *testing.T) {
	t.Parallel()
	f := someFigures()
	// These are the widest figures of a long run.
	p := &f.projections[0]
	p.applied, p.behind, p.parked, p.rate, p.state = 9_999_999, 9_999_999, 999_999, 9_999_999,
		string(admin.StateCatchUp)
	for i, line := range f.table() {
		if len(line) >= 60 {
			t.Errorf("line %d has %d columns: %s", i, len(line), line)
		}
	}
	got := strings.Join(f.table(), "\n")
	want := strings.Join([]string{
		"3.0 s, catching up",
		"appended 400 of 500, 200 events/s",
		"applied 100 events/s, the sum of four projections",
		"",
		"projection     applied  behind parked events/s  state",
		"events_by_type 9999999 9999999 999999  9999999  catching up",
		"events_by_role       0       0      0        0  ",
		"streams              0       0      0        0  catching up",
		"payments             0       0      0        0  ",
		"",
		"streams, position 12, attempt 3: two\nlines",
		"payments handles only events of type Payment Handled",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMovementGrowsWithProgress(t *testing.T) {
	t.Parallel()
	before := someFigures()
	appended, applied := someFigures(), someFigures()
	appended.appended++
	applied.projections[3].applied++
	for name, next := range map[string]figures{"appended": appended, "applied": applied} {
		if next.movement() <= before.movement() {
			t.Errorf("after one more event %s the movement is %d, as before", name, next.movement())
		}
	}
}
