package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// letters are the dead letters of a projection.
type letters struct{ parked, replayed, discarded []projection.DeadLetter }

func lettersOf(ctx context.Context, store *pgstore.Store, m readModel) (all letters, err error) {
	page := projection.DeadLetterPage{Limit: 1000, States: []projection.DeadLetterState{projection.DeadLetterParked, projection.DeadLetterReplaying,
		projection.DeadLetterResolved, projection.DeadLetterDiscarded}}
	for {
		more, err := store.DeadLetters(m.id()).List(ctx, page)
		if err != nil {
			return letters{}, err
		}
		for _, l := range more {
			switch l.State {
			case projection.DeadLetterResolved:
				all.replayed = append(all.replayed, l)
			case projection.DeadLetterDiscarded:
				all.discarded = append(all.discarded, l)
			default:
				all.parked = append(all.parked, l)
			}
		}
		if len(more) < page.Limit {
			return all, nil
		}
		page.After = more[len(more)-1].Position
	}
}

// behind counts those that did not fail.
func (l letters) behind() (n int64) {
	for _, some := range [][]projection.DeadLetter{l.parked, l.replayed} {
		for _, letter := range some {
			if letter.BlockedByStream {
				n++
			}
		}
	}
	return n
}

// hit is an event that a projection could not apply when it came: it was chosen to fail, or it was to be parked behind
// one of its stream.
type hit struct {
	place
	position int64
	behind   bool
}

// hits finds those of a projection among the events: what was chosen for it, and where whole streams are parked, all that
// comes behind and concerns it.
func (f *fault) hits(ctx context.Context, pool *pgxpool.Pool, events string, m readModel) ([]hit, error) {
	var streams []string
	var versions []int64
	for at := range f.chosen.at(m.name) {
		streams, versions = append(streams, at.stream), append(versions, at.version)
	}
	rows, err := pool.Query(ctx, `
		with chosen (stream, version) as (select * from unnest($1::text[], $2::bigint[])),
		     first (stream, version) as (select stream, min(version) from chosen group by stream)
		select e.stream_id, e.stream_version, e.global_seq, $3::boolean and e.stream_version > f.version
		  from `+events+` e join first f on e.stream_id = f.stream
		 where ($4::text = '' or e.type = $4::text)
		   and case when $3::boolean then e.stream_version >= f.version
		            else exists (select from chosen c where c.stream = e.stream_id and c.version = e.stream_version) end
		 order by e.global_seq`, streams, versions, f.onError == projection.ActionParkStream, m.eventType)
	if err != nil {
		return nil, fmt.Errorf("find the events at which %s failed: %w", m.name, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h hit, err error) {
		err = row.Scan(&h.stream, &h.version, &h.position, &h.behind)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("find the events at which %s failed: %w", m.name, err)
	}
	return found, nil
}

// fate is what is to have become of the events that were hit.
type fate struct{ parked, replayed, skipped []hit }

// outcome says what is to have become of these events, now that all is handled.
func (f *fault) outcome(hits []hit) fate {
	switch {
	case f.onError == projection.ActionSkip:
		return fate{skipped: hits}
	case f.mended.Load():
		return fate{replayed: hits}
	}
	return fate{parked: hits}
}

func positions(hits []hit) []int64 {
	all := make([]int64, len(hits))
	for i, h := range hits {
		all[i] = h.position
	}
	return all
}

// compareLetters tells how dead letters differ from what they are to be.
func compareLetters(name, what string, found []projection.DeadLetter, want []hit) (wrong []string) {
	expected := make(map[hit]bool, len(want))
	for _, h := range want {
		expected[h] = true
	}
	met := 0
	for _, l := range found {
		h := hit{place{l.Stream, l.Version}, l.Position, l.BlockedByStream}
		opposite := h
		opposite.behind = !h.behind
		switch {
		case expected[h]:
			met++
		case expected[opposite]:
			met++
			wrong = append(wrong, fmt.Sprintf("%s %s position %d as one behind another: %v; it should be %v", name, what, l.Position, l.BlockedByStream, !l.BlockedByStream))
		default:
			wrong = append(wrong, fmt.Sprintf("%s %s position %d, which was not to be: %s", name, what, l.Position, l.Error))
		}
	}
	if met < len(want) {
		wrong = append(wrong, fmt.Sprintf("%s %s %d of the %d events that were to be", name, what, met, len(want)))
	}
	return shorten(wrong)
}
