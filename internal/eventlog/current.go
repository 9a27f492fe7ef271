package eventlog

import (
	"fmt"
	"iter"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/upcast"
)

// Current yields the current events of a read of stored ones, or these themselves if opts.Stored is set. An event whose
// upcaster fails is yielded as stored, with the error.
func Current(types *upcast.Graph, opts event.ReadOptions,
	read func(opts event.ReadOptions) iter.Seq2[event.Envelope, error]) iter.Seq2[event.Envelope, error] {
	if types == nil || opts.Stored {
		return read(opts)
	}
	return func(yield func(event.Envelope, error) bool) {
		selected, err := types.Select(opts.Types)
		if err != nil {
			yield(event.Envelope{}, fmt.Errorf("read events: %w", err))
			return
		}
		opts.Types = selected.Types
		for e, err := range read(opts) {
			if !yieldCurrent(selected, e, err, yield) {
				return
			}
		}
	}
}

// yieldCurrent yields the events in place of a stored one. It returns false if yield did.
func yieldCurrent(selected upcast.Selection, e event.Envelope, err error, yield func(event.Envelope, error) bool) bool {
	if err != nil || !selected.Upcasts(e.Type) {
		return yield(e, err)
	}
	current, _, err := selected.Upcast([]event.Envelope{e})
	if err != nil {
		return yield(e, fmt.Errorf("read events: %w", err))
	}
	for _, c := range current {
		if !yield(c, nil) {
			return false
		}
	}
	return true
}
