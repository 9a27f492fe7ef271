package main

import (
	"context"
	"iter"

	"github.com/millrace-go/millrace/event"
)

// record is one event of the workload and its stream.
type record struct {
	stream string
	event  event.Event
}

// source is a workload. Each iteration yields the same events, one at a time.
type source iter.Seq2[record, error]

// survey is the result of inspect.
type survey struct {
	events int64
	poison poison
}

// inspect iterates over the source once, before anything is started. It counts the events, refuses invalid ones, and
// chooses the poison events at random.
func inspect(ctx context.Context, from source, poisoned int, seed uint64) (survey, error) {
	var found survey
	choice := newChoice(poisoned, seed)
	for r, err := range from {
		if err != nil {
			return survey{}, err
		}
		if err := ctx.Err(); err != nil {
			return survey{}, err
		}
		found.events++
		choice.offer(r)
	}
	var err error
	found.poison, err = choice.chosen()
	return found, err
}

// withPrefix adds a prefix to the names of the streams.
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
