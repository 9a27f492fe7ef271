package main

import (
	"context"
	"iter"

	"github.com/millrace-go/millrace/event"
)

// record is one event of the workload, and the stream that it belongs to.
type record struct {
	stream string
	event  event.Event
}

// source is a workload. Each iteration yields the same events. It is never in memory as a whole.
type source iter.Seq2[record, error]

// survey is what a first iteration over a source finds out.
type survey struct {
	events int64
	poison poison
}

// inspect iterates over the source once. It counts the events, finds invalid ones before anything is started, and chooses the
// poison events, each with the same probability.
func inspect(ctx context.Context, from source, poisoned int, seed uint64) (survey, error) {
	var found survey
	choice := newChoice(poisoned, seed)
	for r, err := range from {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return survey{}, err
		}
		found.events++
		choice.offer(r)
	}
	var err error
	found.poison, err = choice.chosen()
	return found, err
}

// withPrefix gives the streams of a source names that no other load uses.
func withPrefix(from source, prefix string) source {
	return func(yield func(record, error) bool) {
		for r, err := range from {
			r.stream = prefix + "-" + r.stream
			if !yield(r, err) {
				return
			}
		}
	}
}
