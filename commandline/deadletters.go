package commandline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/report"
	"github.com/millrace-go/millrace/projection"
)

func (c letterCommands) deadLettersCommand() *cobra.Command {
	cmd := group("dead-letters", "List, show, replay and discard parked events",
		c.listDeadLettersCommand(), c.showDeadLetterCommand(), c.countDeadLettersCommand(), c.replayCommand(),
		c.discardCommand(), c.cancelReplayCommand(), c.purgeCommand())
	for _, sub := range cmd.Commands() {
		sub.ValidArgsFunction = c.completeProjections
	}
	return cmd
}

// letterFilter has the flags that select dead letters.
type letterFilter struct {
	projection.DeadLetterFilter
	states []string
}

func (f *letterFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Stream, "stream", "", "only events of this stream")
	cmd.Flags().StringVar(&f.Type, "type", "", "only events of this type, as it is stored")
	cmd.Flags().StringVar(&f.Error, "error", "", "only those whose error contains this text")
}

func (f *letterFilter) addStates(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.states, "state", nil,
		"states: parked, replaying, resolved, discarded (default parked,replaying)")
	completeFlag(cmd, "state", oneOf("parked", "replaying", "resolved", "discarded"))
}

var letterStates = []projection.DeadLetterState{projection.DeadLetterParked, projection.DeadLetterReplaying,
	projection.DeadLetterResolved,
	projection.DeadLetterDiscarded}

// chosen returns the states of the flags.
func (f *letterFilter) chosen() (states []projection.DeadLetterState, err error) {
	for _, s := range f.states {
		state := projection.DeadLetterState(s)
		if !slices.Contains(letterStates, state) {
			return nil, misuse("--state must be parked, replaying, resolved or discarded: %q", s)
		}
		states = append(states, state)
	}
	return states, nil
}

// letterRow is a dead letter. It refers to an event.
type letterRow struct {
	ID            int64      `json:"id"`
	Tenant        string     `json:"tenant"`
	Projection    string     `json:"projection"`
	Partition     int        `json:"partition,omitempty"`
	Position      int64      `json:"position"`
	Stream        string     `json:"stream"`
	Version       int64      `json:"version"`
	Type          string     `json:"type"`
	State         string     `json:"state"`
	Blocked       bool       `json:"blockedByStream"`
	Error         string     `json:"error,omitempty"`
	Stack         string     `json:"stack,omitempty"`
	Attempts      int        `json:"attempts"`
	Replays       int        `json:"replays"`
	FirstFailedAt *time.Time `json:"firstFailedAt,omitempty"`
	LastFailedAt  *time.Time `json:"lastFailedAt,omitempty"`
	EndedAt       *time.Time `json:"endedAt,omitempty"`
	// OutOfOrder reports that the last replay was refused because later events of the stream are handled.
	OutOfOrder bool `json:"outOfOrder,omitempty"`
}

func letterOf(l projection.DeadLetter) letterRow {
	return letterRow{ID: l.ID, Tenant: l.Projection.Tenant, Projection: l.Projection.Name,
		Partition: l.Projection.Partition, Position: l.Position,
		Stream: l.Stream, Version: l.Version, Type: l.Type, State: string(l.State), Blocked: l.BlockedByStream,
		Error: l.Error, Stack: l.Stack,
		Attempts: l.Attempts, Replays: l.Replays, FirstFailedAt: present(l.FirstFailedAt),
		LastFailedAt: present(l.LastFailedAt), EndedAt: present(l.EndedAt),
		OutOfOrder: l.OutOfOrder}
}

// present returns a time in UTC, nil for the zero time.
func present(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

type lettersJSON struct {
	DeadLetters []letterRow `json:"deadLetters"`
	// More reports that there are more than --limit.
	More bool `json:"more"`
}

// lettersOf returns the projections of the arguments, or those that have dead letters.
func (c letterCommands) lettersOf(ctx context.Context, s store, names []string) ([]millrace.ProjectionID, error) {
	if len(names) > 0 {
		return c.targets(ctx, s, names)
	}
	if err := c.known(ctx, s, nil); err != nil {
		return nil, err
	}
	list, err := projectionsOf(ctx, s, admin.StatusFilter{Tenants: c.selected()})
	return whole(list), err
}

func (c letterCommands) listDeadLettersCommand() *cobra.Command {
	var f letterFilter
	page := projection.DeadLetterPage{}
	cmd := &cobra.Command{
		Use:   "list [PROJECTION...]",
		Short: "List parked events",
		Long:  "Lists the parked events of projections, by default of all projections of the tenant.",
		Example: `  millrace dead-letters list
  millrace dead-letters list totals --error "division by zero" --newest-first
  millrace dead-letters list totals --state resolved,discarded --after 120000`,
		RunE: c.with(func(ctx context.Context, s store, names []string) (err error) {
			if page.Limit < 1 {
				return misuse("--limit must be at least 1: %d", page.Limit)
			}
			page.DeadLetterFilter = f.DeadLetterFilter
			page.States, err = f.chosen()
			if err != nil {
				return err
			}
			return c.listDeadLetters(ctx, s, names, page)
		}),
	}
	f.add(cmd)
	f.addStates(cmd)
	cmd.Flags().Int64Var(&page.After, "after", 0, "only those after this position, or before it with --newest-first")
	cmd.Flags().BoolVar(&page.NewestFirst, "newest-first", false, "list the highest positions first")
	cmd.Flags().IntVar(&page.Limit, "limit", 100, "at most so many of each projection")
	return cmd
}

func (c letterCommands) listDeadLetters(ctx context.Context, s store, names []string,
	page projection.DeadLetterPage) error {
	ids, err := c.lettersOf(ctx, s, names)
	if err != nil {
		return err
	}
	all := lettersJSON{DeadLetters: []letterRow{}}
	table := console.Table{Columns: []console.Column{{Title: "id", Right: true}, {Title: "projection", Least: 10},
		{Title: "position", Right: true},
		{Title: "stream", Least: 8, Optional: 2}, {Title: "type", Least: 8, Optional: 1}, {Title: "state"},
		{Title: "attempts", Right: true, Optional: 3},
		{Title: "error", Least: 10, Optional: 4}}}
	limit := page.Limit
	for _, id := range ids {
		page.Limit = limit + 1 // one more, to see whether there are more
		found, err := s.DeadLetters(id).List(ctx, page)
		if err != nil {
			return err
		}
		if len(found) > limit {
			all.More, found = true, found[:limit]
		}
		for _, l := range found {
			letter := letterOf(l)
			all.DeadLetters = append(all.DeadLetters, letter)
			reason := describeError(l)
			if l.OutOfOrder {
				reason = "replay refused, later events of the stream are handled; " + reason
			}
			table.Add(number(l.ID), report.Name(l.Projection), number(l.Position), l.Stream, l.Type, string(l.State),
				number(l.Attempts), reason)
		}
	}
	return c.print(all, func() error {
		err := c.table(table, "no parked events")
		if err == nil && all.More {
			err = c.say("there are more: see --limit and --after")
		}
		return err
	})
}

// describeError returns why an event is parked.
func describeError(l projection.DeadLetter) string {
	if l.BlockedByStream {
		return "an earlier event of the stream is parked"
	}
	return l.Error
}

type shownJSON struct {
	DeadLetter letterRow `json:"deadLetter"`
	// Event is absent if the event is gone or cannot be read, and if it is split. Parts are the events into which it is
	// split.
	Event *eventJSON  `json:"event,omitempty"`
	Parts []eventJSON `json:"parts,omitempty"`
	// Unreadable is why the event cannot be read, or why its upcaster fails. Event is as stored then.
	Unreadable string `json:"unreadable,omitempty"`
}

func (c letterCommands) showDeadLetterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show PROJECTION ID",
		Short:   "Show a parked event, its error and its stack",
		Example: "  millrace dead-letters show totals 42",
		Args:    cobra.ExactArgs(2),
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			ids, err := lettersIDs(args[1:])
			if err != nil {
				return err
			}
			tenant, err := c.oneTenant()
			if err != nil {
				return err
			}
			if err := c.known(ctx, s, args[:1]); err != nil {
				return err
			}
			l, e, err := s.DeadLetters(full(tenant, args[0])).Get(ctx, ids[0])
			if l.ID == 0 {
				return err
			}
			shown := shownJSON{DeadLetter: letterOf(l)}
			switch {
			case err == nil:
				shown.setEvent(c.registry(), tenant, e)
			case errors.Is(err, projection.ErrEventGone):
				err = nil
			case e.Unreadable != nil:
				shown.Unreadable, err = reasonOf(e.Unreadable), nil
			default:
				shown.Unreadable = err.Error()
			}
			return cmp.Or(c.print(shown, func() error { return c.printLetter(l, shown) }), err)
		}),
	}
	c.addStored(cmd)
	return cmd
}

// setEvent sets the event as handlers get it.
func (s *shownJSON) setEvent(types *eventtype.Types, tenant string, stored event.Envelope) {
	current, err := types.Upcast(stored)
	if err != nil {
		current, s.Unreadable = []event.Envelope{stored}, reasonOf(err)
	}
	for _, e := range current {
		s.Parts = append(s.Parts, eventOf(tenant, e))
	}
	if len(s.Parts) == 1 {
		s.Event, s.Parts = &s.Parts[0], nil
	}
}

// body returns the lines about the body.
func (s *shownJSON) body() (lines []string) {
	events := s.Parts
	switch {
	case s.Event != nil:
		events = []eventJSON{*s.Event}
	case s.Unreadable != "":
		return []string{"body: it cannot be read: " + s.Unreadable}
	case len(events) == 0:
		return []string{"body: the event is gone"}
	}
	if s.Unreadable != "" {
		lines = append(lines, "the body is as stored: "+s.Unreadable)
	}
	for _, e := range events {
		if e.Type != s.DeadLetter.Type {
			lines = append(lines, "current type: "+e.Type)
		}
		lines = append(lines, "body: "+compact(e.Body))
		if len(e.Headers) > 0 {
			lines = append(lines, "headers: "+compact(e.Headers))
		}
	}
	return lines
}

func (c letterCommands) printLetter(l projection.DeadLetter, shown shownJSON) error {
	lines := []string{
		fmt.Sprintf("dead letter %d of %s: %s", l.ID, report.Name(l.Projection), l.State),
		fmt.Sprintf("event: position %d, %s version %d, type %s", l.Position, l.Stream, l.Version, l.Type),
		fmt.Sprintf("attempts: %d, failed replays: %d", l.Attempts, l.Replays),
	}
	for _, at := range []struct {
		what string
		time time.Time
	}{{"first failed", l.FirstFailedAt}, {"last failed", l.LastFailedAt}, {"ended", l.EndedAt}} {
		if !at.time.IsZero() {
			lines = append(lines, at.what+": "+at.time.UTC().Format(time.RFC3339))
		}
	}
	lines = append(lines, "error: "+describeError(l))
	if l.OutOfOrder {
		lines = append(lines,
			"replay: refused, since later events of the stream are handled; rebuild the projection, or replay with --out-of-order")
	}
	lines = append(lines, shown.body()...)
	if err := console.NewView(c.out).Print(lines...); err != nil || l.Stack == "" {
		return err
	}
	_, err := fmt.Fprintln(c.out, "stack:\n"+console.Lines(l.Stack))
	return err
}

// lettersIDs parses the numbers of dead letters.
func lettersIDs(args []string) (ids []int64, err error) {
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, misuse("the id of a dead letter is a number from 1: %q", arg)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

type countJSON struct {
	Count int64 `json:"count"`
}

func (c letterCommands) countDeadLettersCommand() *cobra.Command {
	var f letterFilter
	cmd := &cobra.Command{
		Use:     "count [PROJECTION...]",
		Short:   "Count parked events",
		Long:    "Counts the parked events of projections, by default of all projections of the tenant.",
		Example: "  millrace dead-letters count --all-tenants\n  millrace dead-letters count totals --type OrderPlaced",
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			states, err := f.chosen()
			if err != nil {
				return err
			}
			ids, err := c.lettersOf(ctx, s, names)
			if err != nil {
				return err
			}
			var total int64
			for _, id := range ids {
				n, err := s.DeadLetters(id).Count(ctx, f.DeadLetterFilter, states...)
				if err != nil {
					return err
				}
				total += n
			}
			return c.print(countJSON{total}, func() error { return c.say("%d", total) })
		}),
	}
	f.add(cmd)
	f.addStates(cmd)
	return cmd
}

// eventJSON is an event as events and dead-letters print it, and as events import reads it.
type eventJSON struct {
	Tenant        string          `json:"tenant,omitempty"`
	Position      int64           `json:"position"`
	Stream        string          `json:"stream"`
	Version       int64           `json:"version"`
	Part          int             `json:"part,omitempty"`
	Type          string          `json:"type"`
	Time          time.Time       `json:"time"`
	Body          json.RawMessage `json:"body"`
	Headers       json.RawMessage `json:"headers,omitempty"`
	CausationID   string          `json:"causationId,omitempty"`
	CorrelationID string          `json:"correlationId,omitempty"`
}

func eventOf(tenant string, e event.Envelope) eventJSON {
	return eventJSON{Tenant: tenant, Position: e.Position, Stream: e.Stream, Version: e.Version, Part: e.Part,
		Type: e.Type,
		Time: e.Time.UTC(), Body: e.Body, Headers: e.RawHeaders, CausationID: e.CausationID,
		CorrelationID: e.CorrelationID}
}

// describe returns a filter in words.
func (f *letterFilter) describe() string {
	var parts []string
	for _, part := range []struct{ name, value string }{{"stream", f.Stream}, {"type", f.Type}, {"error", f.Error}} {
		if part.value != "" {
			parts = append(parts, fmt.Sprintf("%s %q", part.name, part.value))
		}
	}
	if len(f.IDs) > 0 {
		parts = append(parts, fmt.Sprintf("ids %v", f.IDs))
	}
	if len(parts) == 0 {
		return ""
	}
	return " with " + strings.Join(parts, ", ")
}
