package aggregate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/streams"
)

// ErrUnitEnded is returned if a unit, or an aggregate of it, is used after the function of Run has returned.
var ErrUnitEnded = errors.New("the unit has ended: it is used after the function of Run returned")

// Hook is a function that runs in the transaction of Run. pgstore.Hook and sqlitestore.Hook are Hooks.
type Hook interface{ Engine() handler.Hook }

// Outcome is the result of Run.
type Outcome struct {
	// Position is the position of the last event, for WaitFor. It is 0 if nothing was appended.
	Position int64
	// Repeated reports that the command was carried out before, by its key. Position is then the position of the first
	// time.
	Repeated bool
}

// Run carries out a command on several aggregates in one transaction. fn loads them with Member, and adds events to
// them. After fn has returned, Run appends the events, if all these streams are still at the versions that fn has seen,
// and runs the hooks of the unit; otherwise it calls fn again. If fn or a hook returns an error, nothing is appended,
// and Run returns the error as it is.
//
// A stream that was only loaded is not checked again.
func Run(ctx context.Context, s Store, fn func(ctx context.Context, u *Unit) error, list ...Option) (Outcome, error) {
	o, err := newOptions(ctx, list)
	if err != nil {
		return Outcome{}, fmt.Errorf("carry out a command: %w", err)
	}
	log := s.Streams()
	for try := 0; ; try++ {
		u := &Unit{log: log, options: o}
		refusal := fn(ctx, u)
		u.ended = true
		var commit streams.Commit
		if refusal == nil {
			commit, refusal = u.commit()
		}
		if refusal != nil || len(commit.Appends) == 0 {
			return u.nothing(ctx, refusal)
		}
		results, err := log.Commit(ctx, commit)
		switch {
		case err == nil:
			last := results[len(results)-1]
			return Outcome{Position: last.Last(), Repeated: last.Repeated}, nil
		case errors.Is(err, event.ErrKeyReused): // a repeat that has decided otherwise
			return u.nothing(ctx, err)
		case !log.IsConflict(err):
			return Outcome{}, err
		case try >= o.retries:
			return u.nothing(ctx, err)
		}
	}
}

// Unit collects what a function of Run appends. It belongs to the goroutine of that function.
type Unit struct {
	log     streams.Log
	options options
	members []member
	more    []event.Appending
	hooks   []handler.Hook
	ended   bool
	// err is why the unit cannot be committed.
	err error
}

// member is an aggregate of any category.
type member interface {
	stream() string
	appending() event.Appending
	check() error
	// due reports whether the append saves a snapshot, and save returns it, after the append, or none.
	due() bool
	save(ctx context.Context, from streams.Log) ([]streams.Snapshot, error)
}

// Member is an aggregate of a unit.
type Member[S any] struct {
	// Aggregate has the state with the events that were added. Its Position is the position of the last event that was
	// loaded.
	Aggregate[S]
	category *Category[S]
	unit     *Unit
	loaded   loaded[S]
	events   []event.Event
}

// Member loads an aggregate for a unit. A second call for the same aggregate returns the same Member.
func (c *Category[S]) Member(ctx context.Context, u *Unit, id string) (*Member[S], error) {
	stream, err := c.stream(id)
	if err != nil {
		return nil, err
	}
	if u.ended {
		return nil, fmt.Errorf("load %s: %w", excerpt.Quoted(stream), ErrUnitEnded)
	}
	if i := slices.IndexFunc(u.members, func(m member) bool { return m.stream() == stream }); i >= 0 {
		if m, ok := u.members[i].(*Member[S]); ok {
			return m, nil
		}
		return nil, fmt.Errorf("load %s: the unit has it with a state of another type", excerpt.Quoted(stream))
	}
	l := c.unread(id, stream)
	if err := c.read(ctx, u.log, &l); err != nil {
		return nil, err
	}
	m := &Member[S]{Aggregate: l.Aggregate, category: c, unit: u, loaded: l}
	u.members = append(u.members, m)
	return m, nil
}

// Append adds events to the aggregate, and folds them into its State. If one cannot be folded or stored, Run returns
// the error, even if the function does not.
func (m *Member[S]) Append(events ...event.Event) error {
	if m.unit.ended {
		return fmt.Errorf("append to %s: %w", excerpt.Quoted(m.Stream), ErrUnitEnded)
	}
	events = m.unit.options.caused(events)
	made, err := m.category.decided(m.Stream, events)
	if err != nil {
		return m.unit.fail(err)
	}
	m.Aggregate, err = made.applyTo(m.Aggregate)
	if err != nil {
		return m.unit.fail(err)
	}
	m.events = append(m.events, events...)
	return nil
}

func (m *Member[S]) stream() string { return m.Stream }

// check checks the condition of the category, if the aggregate has changed.
func (m *Member[S]) check() error {
	if len(m.events) == 0 {
		return nil
	}
	return m.category.check(m.State)
}

func (m *Member[S]) appending() event.Appending {
	return event.Appending{Stream: m.Stream, Expected: event.Exact(m.loaded.Version), Events: m.events}
}

func (m *Member[S]) due() bool { return len(m.events) > 0 && m.category.due(&m.loaded, len(m.events)) }

// save reads the aggregate again, since the folds may have changed what was loaded.
func (m *Member[S]) save(ctx context.Context, from streams.Log) ([]streams.Snapshot, error) {
	l := m.category.unread(m.ID, m.Stream)
	return m.category.save(ctx, from, &l)
}

// Append adds an append to a stream that the unit has not loaded, such as a log of commands. If it expects event.Any,
// it is not a decision about that stream. The expectation must not have a key. If the append is refused, Run returns
// the error, even if the function does not.
func (u *Unit) Append(stream string, expected event.Expected, events ...event.Event) error {
	_, keyed := expected.Key()
	taken := func(a event.Appending) bool { return a.Stream == stream }
	reason := ""
	switch {
	case u.ended:
		return fmt.Errorf("append to %s: %w", excerpt.Quoted(stream), ErrUnitEnded)
	case keyed:
		reason = "the expectation must not have a key: the command has one by Key"
	case slices.ContainsFunc(u.more, taken):
		reason = "the unit appends to it twice"
	case len(events) == 0:
		reason = "there are no events"
	}
	if reason != "" {
		return u.fail(fmt.Errorf("append to %s: %s", excerpt.Quoted(stream), reason))
	}
	u.more = append(u.more, event.Appending{Stream: stream,
		Expected: expected, Events: u.options.caused(slices.Clone(events))})
	return nil
}

// Then adds a function that runs in the transaction, after the appends: it writes rows of the caller's own, such as a
// message to be sent. If it is refused, since the store has other transactions, Run returns the error, even if the
// function does not.
func (u *Unit) Then(h Hook) error {
	hook := h.Engine()
	if u.ended {
		return ErrUnitEnded
	}
	if err := u.log.Accepts(hook); err != nil {
		return u.fail(err)
	}
	u.hooks = append(u.hooks, hook)
	return nil
}

// fail notes that the unit cannot be committed.
func (u *Unit) fail(err error) error {
	u.err = errors.Join(u.err, err)
	return err
}

// commit returns what the unit appends, in the order of the streams. The append with the key is the last one, so that
// its position is that of the whole.
func (u *Unit) commit() (c streams.Commit, err error) {
	if u.err != nil {
		return c, u.err
	}
	for _, m := range u.members {
		if err := m.check(); err != nil {
			return c, err
		}
		if a := m.appending(); len(a.Events) > 0 {
			c.Appends = append(c.Appends, a)
		}
		if slices.ContainsFunc(u.more, func(a event.Appending) bool { return a.Stream == m.stream() }) {
			return c, fmt.Errorf("append to %s: the unit has loaded it: use Member.Append", excerpt.Quoted(m.stream()))
		}
	}
	c.Appends = append(c.Appends, u.more...)
	c.Hooks, c.Snapshots = u.hooks, u.snapshots()
	if len(c.Appends) == 0 && len(c.Hooks) > 0 {
		return c, errors.New("the unit has hooks, and appends nothing: use InTx of the store")
	}
	if u.options.keyed && len(c.Appends) > 0 {
		c.Appends[0].Expected = c.Appends[0].Expected.WithKey(u.options.key)
	}
	slices.SortFunc(c.Appends, func(a, b event.Appending) int {
		_, keyed := a.Expected.Key()
		_, other := b.Expected.Key()
		switch {
		case keyed:
			return 1
		case other:
			return -1
		}
		return strings.Compare(a.Stream, b.Stream)
	})
	return c, nil
}

// snapshots returns the function that saves the snapshots that are due, nil if none is.
func (u *Unit) snapshots() func(context.Context, streams.Log) ([]streams.Snapshot, error) {
	var due []member
	for _, m := range u.members {
		if m.due() {
			due = append(due, m)
		}
	}
	if len(due) == 0 {
		return nil
	}
	return func(ctx context.Context, from streams.Log) (list []streams.Snapshot, err error) {
		for _, m := range due {
			saved, err := m.save(ctx, from)
			if err != nil {
				return nil, err
			}
			list = append(list, saved...)
		}
		return list, nil
	}
}

// nothing returns the outcome of a command that has appended nothing: the refusal, unless its key shows that it is a
// repeat.
func (u *Unit) nothing(ctx context.Context, refusal error) (Outcome, error) {
	if !u.options.keyed {
		return Outcome{}, refusal
	}
	first, found, err := u.log.First(ctx, u.options.key)
	switch {
	case err != nil:
		return Outcome{}, err // it is not known whether it is a repeat
	case found:
		return Outcome{Position: first.Last(), Repeated: true}, nil
	}
	return Outcome{}, refusal
}
