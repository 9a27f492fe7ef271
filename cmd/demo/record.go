package main

import (
	"context"
	"iter"

	"github.com/millrace-go/millrace/event"
)

// record is one event of the workload and the stream that it is to be appended to.
type record struct {
	stream string
	event  event.Event
}

// source is a workload. It can be walked through again and then yields the same; it is never in memory as a whole.
type source iter.Seq2[record, error]

// survey is what a first walk through a source finds out.
type survey struct {
	events int64
	poison poison
}

// look walks through the source once: it counts the events, meets whatever is wrong with them before anything is
// started, and chooses the poison events, each as likely as any other.
func look(ctx context.Context, from source, poisoned int, seed uint64) (survey, error) {
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
