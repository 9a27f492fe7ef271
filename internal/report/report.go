// Package report describes the state of a deployment to people: tables of projections and nodes, and what is wrong with
// them.
package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/projection"
)

// longDead is how long a dead node without leases is shown.
const longDead = time.Minute

// Projections returns the table of projections. The columns that show trouble stay on a terminal of 60 columns.
func Projections(list []admin.ProjectionStatus) console.Table {
	t := console.Table{Columns: []console.Column{{Title: "projection", Least: 12}, {Title: "state"},
		{Title: "behind", Right: true},
		{Title: "parked", Right: true}, {Title: "skipped", Right: true}, {Title: "lag", Right: true, Optional: 2},
		{Title: "rate", Right: true, Optional: 3}, {Title: "owner", Least: 8, Optional: 1},
		{Title: "checkpoint", Right: true, Optional: 4},
		{Title: "epoch", Right: true, Optional: 5}}}
	for _, p := range list {
		t.Rows = append(t.Rows, []console.Cell{{Text: Name(p.ID)}, {Text: State(p), Style: styleOf(p.State)},
			{Text: fmt.Sprint(p.Behind)}, count(p.Parked, console.Warning), count(p.Skipped, console.Warning),
			{Text: lag(p.Lag)},
			{Text: rate(p.Rate)}, {Text: Node(p.OwnerName, p.Owner)}, {Text: fmt.Sprint(p.Checkpoint)},
			{Text: fmt.Sprint(p.Epoch)}})
	}
	return t
}

// lag is the age of the oldest unapplied event.
func lag(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	if d > time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// rate is how many positions a projection moves in a second.
func rate(r float64) string {
	if r == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f/s", r)
}

// count is a number that has a style unless it is 0.
func count(n int64, style console.Style) console.Cell {
	if n == 0 {
		style = console.Plain
	}
	return console.Cell{Text: fmt.Sprint(n), Style: style}
}

// Name is the name of a projection, without that of the default tenant.
func Name(id projection.ID) string {
	if id.Tenant == projection.DefaultTenant {
		return strings.TrimPrefix(id.String(), id.Tenant+"/")
	}
	return id.String()
}

// State returns a projection's state for people. The reader does not run projections itself.
func State(p admin.ProjectionStatus) string {
	switch {
	case p.State == admin.StateElsewhere:
		return "running"
	case p.State == admin.StateNotOwned && p.Owner != "":
		return "node dead"
	}
	return string(p.State)
}

func styleOf(s admin.State) console.Style {
	switch s {
	case admin.StateFailed, admin.StateNotOwned, admin.StateUnregistered:
		return console.Bad
	case admin.StateWaiting, admin.StateMissingObject, admin.StatePaused:
		return console.Warning
	case admin.StateLive, admin.StateElsewhere:
		return console.Good
	}
	return console.Plain
}

// Problem returns why a projection makes no progress, or from which others it is kept apart; empty if neither. Any
// other reason of a live projection is that of a parked event.
func Problem(s admin.ProjectionStatus) string {
	switch {
	case s.FailingPosition > 0:
		at := fmt.Sprintf("position %d, attempt %d: ", s.FailingPosition, s.Attempts)
		return at + strings.TrimPrefix(s.Reason, fmt.Sprintf("projection %s: event at %s", s.ID, at))
	case s.Reason != "" && (s.State != admin.StateLive &&
		s.State != admin.StateCatchUp || strings.HasPrefix(s.Reason, "kept apart")):
		return fmt.Sprintf("%s: %s", s.State, s.Reason)
	}
	return ""
}

// Problems returns lines for the projections that make no progress, and for those that are rebuilt.
func Problems(list []admin.ProjectionStatus) (lines []string) {
	for _, p := range list {
		if o := p.Operation; o != nil {
			lines = append(lines, operation(p.ID, *o))
		}
		if r := p.Rebuild; r != nil {
			left := "unknown"
			if r.Left > 0 {
				left = "about " + r.Left.Round(time.Second).String()
			}
			lines = append(lines, fmt.Sprintf("%s, applied again up to %d of %d: %.0f %%, time left: %s",
				Name(p.ID), p.Position, r.To, 100*r.Done, left))
		}
		if problem := Problem(p); problem != "" {
			lines = append(lines, Name(p.ID)+", "+console.OneLine(problem))
		}
	}
	return lines
}

// TenantProblems returns lines for the tenants whose settled mark is held back, or whose events cannot be read.
func TenantProblems(tenants []admin.TenantStatus) (lines []string) {
	for _, t := range tenants {
		switch {
		case t.Held != nil:
			lines = append(lines, fmt.Sprintf("tenant %s, events after position %d wait for %s",
				t.Tenant, t.Mark, strings.Join(t.Held.Holders, ", ")))
		case t.Reason != "":
			lines = append(lines, fmt.Sprintf("tenant %s, events cannot be read: %s",
				t.Tenant, console.OneLine(t.Reason)))
		}
	}
	return lines
}

// operation describes an open operation of a projection.
func operation(id projection.ID, o admin.OperationStatus) string {
	text := fmt.Sprintf("%s, open operation: %s, requested %s", Name(id), o.Kind, o.RequestedAt.Format(time.DateTime))
	if o.Node == "" {
		text += ", no node has begun it"
	}
	if o.Error != "" {
		text += ", last error: " + console.OneLine(o.Error)
	}
	return text
}

// States returns how many projections are in each state.
func States(states map[admin.State]int) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
	}
	return strings.Join(parts, ", ")
}

// Nodes returns the table of nodes, without those that died long ago and have no leases.
func Nodes(nodes []admin.NodeStatus) console.Table {
	t := console.Table{Columns: []console.Column{{Title: "node", Least: 12}, {Title: "projections", Right: true},
		{Title: "state"},
		{Title: "last heartbeat"}, {Title: "id", Optional: 1}}}
	for _, n := range nodes {
		state, style := "dead", console.Bad
		switch {
		case n.Draining:
			state, style = "draining", console.Warning
		case n.Alive:
			state, style = "alive", console.Good
		case n.Leases == 0 && n.Silent > longDead:
			continue
		}
		t.Rows = append(t.Rows, []console.Cell{{Text: Node(n.Name, n.ID)},
			{Text: fmt.Sprint(n.Leases)}, {Text: state, Style: style},
			{Text: fmt.Sprintf("%.1f s ago", n.Silent.Seconds())}, {Text: n.ID}})
	}
	return t
}

// Node returns the name of a node for people, from its name, if it has one, and its id.
func Node(name, id string) string {
	if name != "" {
		return name
	}
	return Short(id)
}

// Short returns the first characters of a node's id, by which people distinguish nodes. Without a node it is a dash.
func Short(id string) string {
	if id == "" {
		return "-"
	}
	return id[:min(len(id), 8)]
}
