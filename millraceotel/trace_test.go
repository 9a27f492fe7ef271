package millraceotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millraceotel"
)

// appended carries out an append as a store does, and returns the events.
func appended(ctx context.Context, t *testing.T, telemetry *millraceotel.Telemetry,
	events ...event.Event) (stored []event.Envelope) {
	t.Helper()
	do := telemetry.Append(func(_ context.Context, a event.Appending) (event.Appended, error) {
		for i, e := range a.Events {
			raw := "{"
			for name, value := range e.Headers {
				if len(raw) > 1 {
					raw += ","
				}
				raw += fmt.Sprintf("%q:%q", name, value)
			}
			stored = append(stored, event.Envelope{Position: int64(i + 1),
				Stream: a.Stream, Type: e.Type, RawHeaders: []byte(raw + "}")})
		}
		return event.Appended{Positions: []int64{1}, Version: 1}, nil
	})
	if _, err := do(ctx, event.Appending{Tenant: "t", Stream: "s", Events: events}); err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestSingleEventContinuesTheTraceOfItsAppend(t *testing.T) {
	telemetry, _, tracer := newTelemetry(t, millraceotel.Options{})
	events := appended(t.Context(), t, telemetry, event.Event{Type: "a"})
	var inside trace.SpanContext
	handle := telemetry.Handle(func(ctx context.Context, _ []event.Envelope) error {
		inside = trace.SpanContextFromContext(ctx)
		return nil
	})
	if err := handle(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	append, process := tracer.spans[0], tracer.spans[1]
	if append.name != "append" || append.config.SpanKind() != trace.SpanKindProducer || !append.ended ||
		append.attribute("millrace.event.type") != "a" ||
		append.attribute("messaging.operation.type") != "send" {
		t.Errorf("the span of the append: %+v", append)
	}
	if process.config.SpanKind() != trace.SpanKindConsumer || process.parent.SpanID() != append.context.SpanID() ||
		!process.parent.IsRemote() ||
		process.context.TraceID() != append.context.TraceID() || len(process.config.Links()) != 0 || !process.ended ||
		process.attribute("messaging.operation.type") != "process" || process.attribute("millrace.position") != "1" {
		t.Errorf("the span of the handler: %+v", process)
	}
	if inside.SpanID() != process.context.SpanID() {
		t.Errorf("the handler was called within %v", inside)
	}
	// A span around the handler, such as that of another middleware, is not lost.
	ctx, outer := tracer.Start(t.Context(), "outer")
	if err := handle(ctx, events); err != nil {
		t.Fatal(err)
	}
	last := tracer.spans[len(tracer.spans)-1]
	if links := last.config.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != outer.SpanContext().SpanID() ||
		last.context.TraceID() != append.context.TraceID() {
		t.Errorf("within another span: %+v", last)
	}
}

func TestBatchLinksToTheAppendsOfItsEvents(t *testing.T) {
	telemetry, _, tracer := newTelemetry(t, millraceotel.Options{MaxLinks: 3})
	var batch []event.Envelope
	for range 5 {
		batch = append(batch, appended(t.Context(), t, telemetry, event.Event{Type: "a"}, event.Event{Type: "b"})...)
	}
	batch = append([]event.Envelope{{Position: 1}, {Position: 2, RawHeaders: []byte(`{"traceparent":"damaged"}`)}},
		batch...)
	handle := telemetry.Handle(func(context.Context, []event.Envelope) error { return nil })
	if err := handle(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	span := tracer.spans[len(tracer.spans)-1]
	links := span.config.Links()
	if len(links) != 3 || span.parent.IsValid() || span.attribute("messaging.batch.message_count") != "12" {
		t.Fatalf("%d links: %+v", len(links), span)
	}
	for i, link := range links {
		if link.SpanContext.SpanID() != tracer.spans[i].context.SpanID() {
			t.Errorf("link %d: %v", i, link)
		}
	}
}

func TestEventsWithoutATraceBeginNone(t *testing.T) {
	telemetry, _, tracer := newTelemetry(t, millraceotel.Options{})
	handle := telemetry.Handle(func(context.Context, []event.Envelope) error { return nil })
	for _, e := range []event.Envelope{{}, {RawHeaders: []byte(`{"traceparent":"damaged"}`)},
		{RawHeaders: []byte(`{"a":"traceparent"}`)}} {
		if err := handle(t.Context(), []event.Envelope{e}); err != nil {
			t.Fatal(err)
		}
		if s := tracer.spans[len(tracer.spans)-1]; s.parent.IsValid() || len(s.config.Links()) != 0 {
			t.Errorf("%s: %+v", e.RawHeaders, s)
		}
	}
}

func TestErrorsOfAppendsAndHandlersAreThoseOfTheirSpans(t *testing.T) {
	telemetry, _, tracer := newTelemetry(t, millraceotel.Options{})
	failure := errors.New("on purpose")
	_, err := telemetry.Append(func(context.Context, event.Appending) (event.Appended,
		error) {
		return event.Appended{}, failure
	})(t.Context(), event.Appending{})
	if !errors.Is(err, failure) {
		t.Errorf("the append returned %v", err)
	}
	if err := telemetry.Handle(func(context.Context, []event.Envelope) error { return failure })(t.Context(),
		[]event.Envelope{{}}); !errors.Is(err, failure) {
		t.Errorf("the handler returned %v", err)
	}
	for _, s := range tracer.spans {
		if s.status != codes.Error || !s.ended {
			t.Errorf("%+v", s)
		}
	}
}

func TestHeadersOfTheCallerAreKept(t *testing.T) {
	telemetry, _, _ := newTelemetry(t, millraceotel.Options{})
	mine := event.Event{Type: "a", Headers: map[string]string{"traceparent": "mine"}}
	if got := appended(t.Context(), t, telemetry, mine)[0].Headers()["traceparent"]; got != "mine" {
		t.Errorf("traceparent is %q", got)
	}
}
