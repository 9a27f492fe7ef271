package upcast

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/valid"
)

// Upcast returns the current events in place of a stored one, which is not changed. They have its position, stream,
// version, headers and time. Of a redacted event only the type changes. If an upcaster fails or panics, the error is an
// *event.DecodeError with ErrUpcast.
func (g *Graph) Upcast(e event.Envelope) ([]event.Envelope, error) {
	return Selection{graph: g}.appendTo(nil, e)
}

// Selection is a selection of events by current types.
type Selection struct {
	// Types are the stored types that may lead to the selected ones. It is nil if all are selected.
	Types []string
	graph *Graph
	// wanted are the selected types, nil if all are.
	wanted map[string]bool
}

// Select selects the events of these types, or all if there are none. A type must be registered and current.
func (g *Graph) Select(types []string) (Selection, error) {
	s := Selection{Types: types, graph: g}
	if g == nil || len(types) == 0 {
		return s, nil
	}
	stored := make(map[string]bool)
	s.wanted = make(map[string]bool)
	for _, t := range types {
		if err := g.Registered(t); err != nil {
			return s, err
		}
		if r := g.roads[t]; r != nil {
			return s, &typeError{t, ErrOutdated, "is outdated: it becomes " + quoted(r.ends)}
		}
		s.wanted[t], stored[t] = true, true
	}
	for old, r := range g.roads {
		if s.wants(r) {
			stored[old] = true
		}
	}
	s.Types = slices.Sorted(maps.Keys(stored))
	return s, nil
}

// wants reports whether a road may end at a selected type.
func (s Selection) wants(r *road) bool {
	return slices.ContainsFunc(r.ends, func(end string) bool { return s.wanted[end] })
}

// Upcasts reports whether events of a type become others.
func (s Selection) Upcasts(eventType string) bool { return s.graph.Outdated(eventType) }

// Any reports whether there are events that become others.
func (s Selection) Any() bool { return s.graph != nil && len(s.graph.roads) > 0 }

// Upcast returns the selected events in place of stored ones, which are not changed. If none of them becomes another,
// it returns the same slice. After an error it returns those in place of the first done stored events. The error is
// about the next one.
func (s Selection) Upcast(stored []event.Envelope) (current []event.Envelope, done int, err error) {
	first := s.firstOld(stored)
	if first == len(stored) {
		return stored, first, nil
	}
	current = append(make([]event.Envelope, 0, len(stored)), stored[:first]...)
	for done = first; done < len(stored); done++ {
		current, err = s.appendTo(current, stored[done])
		if err != nil {
			return current, done, err
		}
	}
	return current, done, nil
}

// firstOld returns the index of the first event that becomes another. Events of one type often follow each other.
func (s Selection) firstOld(events []event.Envelope) int {
	if !s.Any() {
		return len(events)
	}
	current := ""
	for i := range events {
		if events[i].Type == current {
			continue
		}
		current = events[i].Type
		if s.graph.roads[current] != nil {
			return i
		}
	}
	return len(events)
}

// appendTo appends the selected events in place of a stored one.
func (s Selection) appendTo(all []event.Envelope, e event.Envelope) ([]event.Envelope, error) {
	if !s.Upcasts(e.Type) {
		return append(all, e), nil
	}
	r, n := s.graph.roads[e.Type], len(all)
	all, err := s.graph.run(all, e, e)
	if err != nil {
		return all[:n], err
	}
	if !r.splits {
		return all, nil
	}
	for i := n; i < len(all); i++ {
		all[i].Part = i - n + 1
	}
	if s.wanted == nil || !s.wants(r) { // a dead letter may be of a type that the program has selected before
		return all, nil
	}
	kept := slices.DeleteFunc(all[n:], func(e event.Envelope) bool { return !s.wanted[e.Type] })
	return all[:n+len(kept)], nil
}

// run appends the events in place of e, which was made of a stored event. After an error it has appended some of them.
func (g *Graph) run(all []event.Envelope, stored, e event.Envelope) ([]event.Envelope, error) {
	r := g.roads[e.Type]
	switch {
	case r == nil:
		return append(all, e), nil
	case e.Redacted():
		for _, end := range r.ends {
			e.Type = end
			all = append(all, e)
		}
		return all, nil
	case r.step.Make == nil:
		e.Type = r.step.To[0]
		return g.run(all, stored, e)
	}
	made, err := r.step.call(e)
	if err != nil {
		return all, r.step.wrap(stored, err)
	}
	for _, m := range made {
		next := e
		next.Type, next.Body = m.Type, valid.Body(m.Body)
		all, err = g.run(all, stored, next)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// call calls the function of the user, and checks what it returns.
func (s Step) call(e event.Envelope) (made []event.Event, err error) {
	err = usercode.Protect(func() (err error) {
		made, err = s.Make(e)
		return err
	})
	if err == nil && len(made) == 0 {
		err = errors.New("it returned no event")
	}
	for _, m := range made {
		switch {
		case err != nil:
		case !slices.Contains(s.To, m.Type):
			err = fmt.Errorf("it returned an event of type %s, which is no target of it", excerpt.Quoted(m.Type))
		default:
			err = m.Validate()
		}
	}
	return made, err
}

// wrap returns the error of a step for an event.
func (s Step) wrap(stored event.Envelope, err error) error {
	failed := &event.DecodeError{
		Position: stored.Position, Stream: stored.Stream, Type: stored.Type, Into: strings.Join(s.To, " and "),
	}
	var inner *event.DecodeError
	if errors.As(err, &inner) { // of event.As
		failed.Path, err = inner.Path, fmt.Errorf("as %s: %w", inner.Into, inner.Err)
	}
	failed.Err = fmt.Errorf("%w at %s: %w", ErrUpcast, excerpt.Quoted(s.From), err)
	return failed
}
