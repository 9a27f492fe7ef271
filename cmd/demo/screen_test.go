package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
)

func TestLatencyIsInMilliseconds(t *testing.T) {
	var s stopwatch
	for _, d := range []time.Duration{3 * time.Millisecond, 1500 * time.Microsecond, 9 * time.Millisecond} {
		s.add(d)
	}
	if got, want := s.latency(), (latency{P50: 3, P99: 9, Samples: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// someStatus is one in which one projection has trouble and another had it.
func someStatus(applied int64) millrace.Status {
	return millrace.Status{Projections: []millrace.ProjectionStatus{
		{ID: millrace.ProjectionID{Tenant: "default", Name: "events_by_type"}, State: millrace.StateLive, Applied: applied, Behind: 7, Parked: 2, Reason: "long parked"},
		{ID: millrace.ProjectionID{Tenant: "default", Name: "streams"}, State: millrace.StateLive, FailingPosition: 12, Attempts: 3, Reason: "two\nlines"},
	}}
}

func TestPlainScreenWritesOneLineEachTime(t *testing.T) {
	f := figures{total: 500}.look(time.Second, loading, 100, someStatus(90)).look(3*time.Second, settling, 400, someStatus(290))
	f.load = latency{P50: 1.25, P99: 20, Samples: 3}
	var out bytes.Buffer
	s := newScreen(&out)
	told := f
	told.news = "7 of 7 were replayed"
	if err := s.show(told); err != nil || !strings.HasSuffix(out.String(), "p99 20.0 ms; 7 of 7 were replayed\n") {
		t.Errorf("wrote %q, want the news at the end: %v", out.String(), err)
	}
	out.Reset()
	if err := s.show(told); err != nil || strings.Contains(out.String(), "replayed") {
		t.Errorf("wrote the news again: %q, %v", out.String(), err)
	}
	out.Reset()
	for range 2 {
		if err := s.show(f); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || lines[0] != lines[1] || lines[2] != "" {
		t.Fatalf("wrote %q, want two lines", out.String())
	}
	want := "   3.0s catching up: appended 400 of 500, 150/s; events_by_type applied 290, behind 7, 100/s, parked 2; " +
		"events_by_role applied 0, behind 0, 0/s, parked 0; " +
		"streams applied 0, behind 0, 0/s, parked 0 (position 12, attempt 3: two; lines); " +
		"payments applied 0, behind 0, 0/s, parked 0; commit to applied under load p50 1.2 ms, p99 20.0 ms"
	if lines[0] != want {
		t.Errorf("wrote\n%s\nwant\n%s", lines[0], want)
	}
}

func TestTerminalScreenStaysInItsPlace(t *testing.T) {
	var out bytes.Buffer
	s := &terminalScreen{&canvas{out: &out, size: func() (int, int) { return 40, 6 }}}
	f := figures{total: 500}.look(time.Second, loading, 100, someStatus(90))
	for range 2 {
		if err := s.show(f); err != nil {
			t.Fatal(err)
		}
	}
	first, second, _ := strings.Cut(strings.TrimPrefix(out.String(), "\r\x1b[J"), "\r")
	if n := strings.Count(first, "\n"); n != 5 {
		t.Errorf("%d lines on a terminal of 6, want 5", n)
	}
	if want := fmt.Sprintf("\x1b[5A\x1b[J%s", first); second != want {
		t.Errorf("the second time it wrote %q, want %q", second, want)
	}
	for line := range strings.Lines(first) {
		if len(line) > 40 {
			t.Errorf("line %q is wider than the terminal", line)
		}
	}
}

func TestFiguresTellWhetherAnythingMoves(t *testing.T) {
	before := figures{total: 500}.look(time.Second, loading, 100, someStatus(90))
	if same := before.look(2*time.Second, loading, 100, someStatus(90)); same.moved(before) {
		t.Error("it stands still, and is said to move")
	}
	for name, next := range map[string]figures{
		"appended": before.look(2*time.Second, loading, 101, someStatus(90)),
		"applied":  before.look(2*time.Second, loading, 100, someStatus(91)),
	} {
		if !next.moved(before) {
			t.Errorf("%s more, and is said to stand still", name)
		}
	}
}
