package main

import (
	"fmt"
	"iter"

	"github.com/millrace-go/millrace/internal/eventfile"
)

// readFile reads a file with one JSON object in each line, plain or compressed by gzip.
func readFile(path string) source {
	return claimsIn(eventfile.Open(path))
}

// claimsIn refuses payments whose amount is not exact.
func claimsIn(lines iter.Seq2[eventfile.Record, error]) source {
	return func(yield func(record, error) bool) {
		for r, err := range lines {
			if err == nil && r.Event.Type == paid {
				_, err = amountOf(r.Event.Body)
				if err != nil {
					err = fmt.Errorf("line %d: data of a payment: %w", r.Line, err)
				}
			}
			if !yield(record{stream: r.Stream, event: r.Event}, err) || err != nil {
				return
			}
		}
	}
}
