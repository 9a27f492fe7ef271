package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/program"
)

// screen shows figures as they come.
type screen interface {
	show(figures) error
	// every is how often there is something new to be seen.
	every() time.Duration
}

// newScreen refreshes in place where out is a terminal that can do that, and writes plain lines elsewhere.
func newScreen(out io.Writer) screen {
	if c := newCanvas(out); c != nil {
		return &terminalScreen{c}
	}
	return &plainScreen{out: out}
}

// plainScreen writes one line each time.
type plainScreen struct {
	out  io.Writer
	told string // the news that were told last
}

func (s *plainScreen) every() time.Duration { return time.Second }

func (s *plainScreen) show(f figures) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%6.1fs %s: appended %d of %d, %.0f/s", f.at.Seconds(), f.phase, f.appended, f.total, f.rate)
	for _, p := range f.projections {
		fmt.Fprintf(&b, "; %s applied %d, behind %d, %.0f/s, parked %d", p.name, p.applied, p.behind, p.rate, p.parked)
		if p.trouble != "" {
			fmt.Fprintf(&b, " (%s)", program.OneLine(p.trouble))
		}
	}
	if f.load.Samples > 0 {
		fmt.Fprintf(&b, "; commit to applied under load %s", f.load)
	}
	if f.rest.Samples > 0 {
		fmt.Fprintf(&b, "; one at a time %s", f.rest)
	}
	if f.news != "" && f.news != s.told {
		s.told = f.news
		fmt.Fprintf(&b, "; %s", f.news)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(s.out, b.String())
	return err
}

// terminalScreen draws a table in place.
type terminalScreen struct{ canvas *canvas }

func (s *terminalScreen) every() time.Duration { return 200 * time.Millisecond }

func (s *terminalScreen) show(f figures) error { return s.canvas.draw(table(f)) }

// table is the screen line by line.
func table(f figures) []string {
	lines := []string{
		fmt.Sprintf("%.1f s, %s", f.at.Seconds(), f.phase),
		fmt.Sprintf("appended %d of %d, %.0f/s", f.appended, f.total, f.rate),
		"",
		fmt.Sprintf("%-16s %10s %10s %10s %8s", "projection", "applied", "behind", "per second", "parked"),
	}
	for _, p := range f.projections {
		line := fmt.Sprintf("%-16s %10d %10d %10.0f %8d", p.name, p.applied, p.behind, p.rate, p.parked)
		if p.trouble != "" {
			line += "  " + program.OneLine(p.trouble)
		}
		lines = append(lines, line)
	}
	lines = append(lines, "",
		fmt.Sprintf("%-36s %s", "commit to applied, under load", f.load),
		fmt.Sprintf("%-36s %s", "commit to applied, one at a time", f.rest))
	if f.news != "" {
		lines = append(lines, "", f.news)
	}
	return lines
}
