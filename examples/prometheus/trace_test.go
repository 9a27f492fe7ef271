package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace-go/millrace/projection"
)

func TestOrderAndWhatFollowsAreOneTrace(t *testing.T) {
	onEachStore(t, func(t *testing.T, o options) {
		exporter := tracetest.NewInMemoryExporter()
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		o.tracers = tracers
		s := open(t, o)
		ctx, request := tracers.Tracer("test").Start(t.Context(), "request")
		placed, err := s.place(ctx, OrderPlaced{Customer: "c", Cents: 5})
		request.End()
		if err != nil {
			t.Fatal(err)
		}
		// The order is confirmed, and the confirmation is mailed.
		for name, position := range map[string]int64{"confirmations": placed.Positions[0],
			"orders": placed.Positions[0], "mails": placed.Positions[0] + 1} {
			if err := s.runtime.WaitFor(t.Context(), projection.ID{Name: name}, position); err != nil {
				t.Fatal(err)
			}
		}
		spans := make(map[string]tracetest.SpanStub)
		for _, span := range exporter.GetSpans() {
			name := span.Name
			if name == "append" && span.Parent.SpanID() != request.SpanContext().SpanID() {
				name = "append of the confirmation"
			}
			if _, twice := spans[name]; twice && !strings.HasPrefix(name, "process mails") {
				t.Errorf("there are two spans %q", name)
			}
			spans[name] = span
			if span.SpanContext.TraceID() != request.SpanContext().TraceID() {
				t.Errorf("%q is in another trace: %+v", name, span)
			}
		}
		for name, of := range map[string]struct {
			parent string
			kind   trace.SpanKind
			remote bool
		}{
			"append":                     {"request", trace.SpanKindProducer, false},
			"process confirmations":      {"append", trace.SpanKindConsumer, true},
			"process orders":             {"append", trace.SpanKindConsumer, true},
			"append of the confirmation": {"process confirmations", trace.SpanKindProducer, false},
			"process mails":              {"append of the confirmation", trace.SpanKindConsumer, true},
		} {
			span, found := spans[name]
			if !found || span.Parent.SpanID() != spans[of.parent].SpanContext.SpanID() || span.SpanKind != of.kind ||
				span.Parent.IsRemote() != of.remote {
				t.Errorf("%q is not a child of %q: %+v", name, of.parent, span)
			}
		}
	})
}

func TestBatchOfOrdersLinksToTheirTraces(t *testing.T) {
	onEachStore(t, func(t *testing.T, o options) {
		exporter := tracetest.NewInMemoryExporter()
		o.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		s, err := newShop(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		const orders = 5
		for range orders {
			if _, err := s.place(t.Context(), OrderPlaced{Customer: "c"}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := s.runtime.RunUntilIdle(ctx); err != nil {
			t.Fatal(err)
		}
		var appends, links []trace.SpanID
		for _, span := range exporter.GetSpans() {
			switch span.Name {
			case "append":
				if !span.Parent.IsValid() {
					appends = append(appends, span.SpanContext.SpanID())
				}
			case "process orders":
				for _, link := range span.Links {
					links = append(links, link.SpanContext.SpanID())
				}
			}
		}
		if len(links) != orders || !slices.Equal(appends, links) {
			t.Errorf("appends %v, links %v", appends, links)
		}
	})
}
