package report

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
)

// Snapshot is what people see of a deployment at one time.
type Snapshot struct {
	At      time.Time
	Status  admin.Status
	Summary admin.Summary
	// Err is why the rest could not be read.
	Err error
}

// Lines returns the tables of a snapshot, in lines of at most the given width. 0 is unlimited.
func (s Snapshot) Lines(width int, colours bool) []string {
	if s.Err != nil {
		return wrapped([]string{"the status cannot be read: " + console.OneLine(s.Err.Error())}, width)
	}
	lines := s.projections(width, colours, s.Status.Projections)
	lines = append(lines, wrapped(s.problems(), width)...)
	return append(append(lines, ""), s.nodes(width, colours)...)
}

// problems returns lines for the tenants whose events wait, and for projections.
func (s Snapshot) problems() []string {
	return append(TenantProblems(s.Status.Tenants), Problems(s.Status.Projections)...)
}

func (s Snapshot) projections(width int, colours bool, list []admin.ProjectionStatus) []string {
	if len(list) == 0 {
		return []string{"no projections: nodes create those that they register"}
	}
	return Projections(list).Lines(width, colours)
}

func (s Snapshot) nodes(width int, colours bool) []string {
	t := Nodes(s.Summary.Nodes)
	if len(t.Rows) == 0 {
		return []string{"no nodes"}
	}
	return t.Lines(width, colours)
}

// severity sorts states, the worst first.
var severity = []admin.State{admin.StateFailed, admin.StateUnregistered, admin.StateNotOwned, admin.StateMissingObject,
	admin.StateWaiting,
	admin.StatePaused, admin.StateStarting, admin.StateCatchUp, admin.StateElsewhere, admin.StateLive}

// Worst returns the n worst projections, the worst first. If there are no more, it returns them as they are.
func Worst(list []admin.ProjectionStatus, n int) []admin.ProjectionStatus {
	if len(list) <= n {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b admin.ProjectionStatus) int {
		return cmp.Or(slices.Index(severity, a.State)-slices.Index(severity, b.State), cmp.Compare(b.Parked, a.Parked),
			cmp.Compare(b.Behind, a.Behind))
	})
	return list[:n]
}

// Frame returns a snapshot for a screen of that size. If not all projections fit, it has the worst ones.
func (s Snapshot) Frame(width, height int, colours bool) []string {
	head := s.head(width)
	if s.Err != nil {
		return append(head, s.Lines(width, colours)...)
	}
	full := append(append(slices.Clone(head), ""), s.Lines(width, colours)...)
	if len(full) <= height {
		return full
	}
	problems := wrapped(s.problems(), width)
	problems = problems[:min(len(problems), height/3)]
	room := max(1, height-len(head)-len(problems)-3) // the lines of titles, of what is missing, and a blank one
	list := Worst(s.Status.Projections, room)
	lines := append(append(head, ""), s.projections(width, colours, list)...)
	if more := len(s.Status.Projections) - len(list); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more that are no worse", more))
	}
	lines = append(lines, problems...)
	return lines[:min(len(lines), height)]
}

// head is the headline with the time, in lines of at most the given width.
func (s Snapshot) head(width int) []string {
	return wrapped([]string{s.At.Format(time.TimeOnly) + "  " + s.headline()}, width)
}

// headline is the state of the deployment in one line.
func (s Snapshot) headline() string {
	if s.Err != nil {
		return ""
	}
	alive := 0
	for _, n := range s.Summary.Nodes {
		if n.Alive {
			alive++
		}
	}
	parts := []string{fmt.Sprintf("nodes alive: %d", alive)}
	if len(s.Summary.States) > 0 {
		parts = append(parts, States(s.Summary.States))
	}
	if s.Summary.NotOwned > 0 {
		parts = append(parts, fmt.Sprintf("%d without a living node for too long", s.Summary.NotOwned))
	}
	if s.Summary.Unregistered > 0 {
		parts = append(parts, fmt.Sprintf("%d that no node registers", s.Summary.Unregistered))
	}
	if s.Summary.Parked > 0 {
		parts = append(parts, fmt.Sprintf("parked: %d, the oldest since %s in %s", s.Summary.Parked,
			s.Summary.OldestParked.Format(time.DateTime), Name(s.Summary.OldestParkedIn)))
	}
	return strings.Join(parts, "; ")
}

// wrapped wraps lines, unless width is 0.
func wrapped(lines []string, width int) (all []string) {
	if width <= 0 {
		return lines
	}
	for _, line := range lines {
		all = append(all, console.Wrap(line, width)...)
	}
	return all
}

// Watch shows snapshots until ctx ends: as a screen on a terminal, one after another elsewhere. A snapshot with an
// error is shown like any other, since the database may come back.
func Watch(ctx context.Context, out io.Writer, every time.Duration,
	read func(ctx context.Context) Snapshot) (err error) {
	screen, live := console.NewScreen(out)
	colours := console.Colours(out)
	if live {
		defer func() { err = cmp.Or(err, screen.Close()) }()
	}
	resized, stop := console.Resized()
	defer stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	snapshot := read(ctx)
	for ctx.Err() == nil {
		if live {
			width, height := screen.Size()
			err = screen.Show(snapshot.Frame(width, height, colours))
		} else {
			width := console.TerminalWidth(out)
			lines := append(snapshot.head(width), snapshot.Lines(width, false)...)
			_, err = fmt.Fprintln(out, strings.Join(lines, "\n")+"\n")
		}
		if err != nil {
			return fmt.Errorf("show the status: %w", err)
		}
		select {
		case <-ticker.C:
			snapshot = read(ctx)
		case <-resized:
		case <-ctx.Done():
		}
	}
	return nil
}

// Print prints a snapshot once.
func Print(out io.Writer, s Snapshot) error {
	_, err := fmt.Fprintln(out, strings.Join(s.Lines(console.TerminalWidth(out), console.Colours(out)), "\n"))
	return err
}
