package handler

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace-go/millrace/event"
)

// BenchmarkEach has what a batch of 500 events costs a handler of single events that does nothing, and a Route to such
// handlers whose types alternate. Each call has a context with its cause.
func BenchmarkEach(b *testing.B) {
	one := On(func(context.Context, *log, event.Of[opened]) error { return nil })
	for name, h := range map[string]Handler{
		"each":  Each(func(context.Context, *log, event.Envelope) error { return nil }),
		"route": Route[*log](one, On(func(context.Context, *log, event.Of[closed]) error { return nil })),
	} {
		events := list(slices.Repeat([]string{"opened", "closed"}, 250)...)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Apply(b.Context(), &log{}, events); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
