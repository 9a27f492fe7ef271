package main

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/projection"
)

// deadLettersOf returns all dead letters of a projection.
func deadLettersOf(ctx context.Context, d database, m readModel) (all []projection.DeadLetter, err error) {
	page := projection.DeadLetterPage{Limit: 1000,
		States: []projection.DeadLetterState{projection.DeadLetterParked, projection.DeadLetterReplaying,
			projection.DeadLetterResolved, projection.DeadLetterDiscarded}}
	for {
		more, err := d.DeadLetters(m.id()).List(ctx, page)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
		if len(more) < page.Limit {
			return all, nil
		}
		page.After = more[len(more)-1].Position
	}
}

// deadLetterSummary counts dead letters.
type deadLetterSummary struct {
	// Parked is how many events were ever parked. Behind is how many of them did not fail, but follow a parked event of
	// their stream.
	Parked int64 `json:"parked"`
	Behind int64 `json:"behind"`
	// Replayed is how many a replay applied, Left how many are parked at the end.
	Replayed int64 `json:"replayed"`
	Left     int64 `json:"left"`
}

func (s *deadLetterSummary) add(letters []projection.DeadLetter) {
	for _, l := range letters {
		s.Parked++
		if l.BlockedByStream {
			s.Behind++
		}
		switch l.State {
		case projection.DeadLetterResolved:
			s.Replayed++
		case projection.DeadLetterParked, projection.DeadLetterReplaying:
			s.Left++
		}
	}
}

// affectedEvent is an event that a projection must park or skip: it fails, or it follows such an event in its stream
// (blocked).
type affectedEvent struct {
	eventID
	position int64
	blocked  bool
}

// affected returns the events that a fault of the demo concerns in a projection. It derives them from the events alone.
func (f *fault) affected(ctx context.Context, d database, m readModel) ([]affectedEvent, error) {
	chosen := [][]any{}
	for at := range f.chosen.of(m.name) {
		chosen = append(chosen, []any{at.stream, at.version})
	}
	following := f.onError == projection.ActionParkStream
	var found []affectedEvent
	var h affectedEvent
	err := query(ctx, d, `
		with events as ({events}),
		     chosen (stream, version) as (select value ->> 0, cast(value ->> 1 as bigint) from {elements $1}),
		     first (stream, version) as (select stream, min(version) from chosen group by stream)
		select e.stream, e.version, e.position, e.version > f.version
		  from events e join first f on e.stream = f.stream
		 where ($2 = '' or e.type = $2) and e.version >= f.version
		 order by e.position`, []any{asJSON(chosen), m.eventType}, []any{&h.stream, &h.version, &h.position, &h.blocked}, func() {
		switch {
		case following:
			found = append(found, h)
		case f.chosen[h.eventID] == m.name:
			h.blocked = false
			found = append(found, h)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("find the events at which %s fails: %w", m.name, err)
	}
	return found, nil
}

// compareDeadLetters returns the differences between the dead letters of a projection and its affected events.
func (f *fault) compareDeadLetters(name string, found []projection.DeadLetter,
	affected []affectedEvent) (wrong []string) {
	missing := make(map[affectedEvent]bool)
	if f.onError != projection.ActionSkip {
		for _, h := range affected {
			missing[h] = true
		}
	}
	want := projection.DeadLetterParked
	if f.fixed.Load() {
		want = projection.DeadLetterResolved
	}
	for _, l := range found {
		h := affectedEvent{eventID{l.Stream, l.Version}, l.Position, l.BlockedByStream}
		switch {
		case !missing[h]:
			wrong = append(wrong,
				fmt.Sprintf("%s parked position %d of %s unexpectedly (blocked by its stream: %v): %s", name,
					l.Position, l.Stream, l.BlockedByStream, l.Error))
		case l.State != want:
			wrong = append(wrong, fmt.Sprintf("%s: the dead letter at position %d is %s, not %s",
				name, l.Position, l.State, want))
		}
		delete(missing, h)
	}
	if len(missing) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s did not park %d of the %d events that fail",
			name, len(missing), len(affected)))
	}
	return shorten(wrong)
}
