package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// deadLettersOf returns all dead letters of a projection.
func deadLettersOf(ctx context.Context, store *pgstore.Store, m readModel) (all []projection.DeadLetter, err error) {
	page := projection.DeadLetterPage{Limit: 1000, States: []projection.DeadLetterState{projection.DeadLetterParked, projection.DeadLetterReplaying,
		projection.DeadLetterResolved, projection.DeadLetterDiscarded}}
	for {
		more, err := store.DeadLetters(m.id()).List(ctx, page)
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
	// Parked is how many events were ever parked. Behind is how many of them did not fail, but follow a parked event of their
	// stream.
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

// affectedEvent is an event that a projection must park or skip: it fails, or it follows such an event in its stream (blocked).
type affectedEvent struct {
	eventID
	position int64
	blocked  bool
}

// affected returns the affected events of a projection. It derives them from the events alone.
func (f *fault) affected(ctx context.Context, d *program.Database, m readModel) ([]affectedEvent, error) {
	var streams []string
	var versions []int64
	for at := range f.chosen.of(m.name) {
		streams, versions = append(streams, at.stream), append(versions, at.version)
	}
	rows, err := d.Pool.Query(ctx, `
		with chosen (stream, version) as (select * from unnest($1::text[], $2::bigint[])),
		     first (stream, version) as (select stream, min(version) from chosen group by stream)
		select e.stream_id, e.stream_version, e.global_seq, $3::boolean and e.stream_version > f.version
		  from `+eventsOf(d)+` e join first f on e.stream_id = f.stream
		 where ($4::text = '' or e.type = $4::text)
		   and case when $3::boolean then e.stream_version >= f.version
		            else exists (select from chosen c where c.stream = e.stream_id and c.version = e.stream_version) end
		 order by e.global_seq`, streams, versions, f.onError == projection.ActionParkStream, m.eventType)
	if err != nil {
		return nil, fmt.Errorf("find the events at which %s fails: %w", m.name, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h affectedEvent, err error) {
		err = row.Scan(&h.stream, &h.version, &h.position, &h.blocked)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("find the events at which %s fails: %w", m.name, err)
	}
	return found, nil
}

// compareDeadLetters returns the differences between the dead letters of a projection and its affected events.
func (f *fault) compareDeadLetters(name string, found []projection.DeadLetter, affected []affectedEvent) (wrong []string) {
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
			wrong = append(wrong, fmt.Sprintf("%s parked position %d of %s unexpectedly (blocked by its stream: %v): %s", name, l.Position, l.Stream, l.BlockedByStream, l.Error))
		case l.State != want:
			wrong = append(wrong, fmt.Sprintf("%s: the dead letter at position %d is %s, not %s", name, l.Position, l.State, want))
		}
		delete(missing, h)
	}
	if len(missing) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s did not park %d of the %d events that fail", name, len(missing), len(affected)))
	}
	return shorten(wrong)
}

func eventsOf(d *program.Database) string {
	return pgx.Identifier{d.Store.EventsSchema(), "events"}.Sanitize()
}
