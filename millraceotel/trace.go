package millraceotel

import (
	"bytes"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
)

// The attributes that OpenTelemetry defines for messaging.
const (
	keySystem    = attribute.Key("messaging.system")
	keyOperation = attribute.Key("messaging.operation.name")
	keyKind      = attribute.Key("messaging.operation.type")
	keyGroup     = attribute.Key("messaging.consumer.group.name")
	keyCount     = attribute.Key("messaging.batch.message_count")
)

// Append is middleware for AppendMiddleware of a store. It makes a span for each append, and adds the trace context to
// the headers of the events. Existing headers of an event are kept.
func (t *Telemetry) Append(next event.AppendFunc) event.AppendFunc {
	return func(ctx context.Context, a event.Appending) (event.Appended, error) {
		ctx, span := t.tracer.Start(ctx, "append", trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(append(appendAttributes(a), t.attributes...)...))
		defer span.End()
		headers := make(propagation.MapCarrier)
		t.propagator.Inject(ctx, headers)
		appended, err := next(ctx, a.WithHeaders(headers))
		if err != nil {
			setError(span, err)
		} else if len(appended.Positions) > 0 {
			span.SetAttributes(keyPosition.Int64(appended.Positions[0]))
		}
		return appended, err
	}
}

func appendAttributes(a event.Appending) []attribute.KeyValue {
	attributes := []attribute.KeyValue{keySystem.String("millrace"), keyOperation.String("append"),
		keyKind.String("send"),
		keyTenant.String(a.Tenant), keyStream.String(a.Stream), keyCount.Int(len(a.Events))}
	if len(a.Events) == 1 {
		attributes = append(attributes, keyEventType.String(a.Events[0].Type))
	}
	return attributes
}

// Handle is middleware for Config.Middleware. It makes a span for each call of a handler.
func (t *Telemetry) Handle(next millrace.HandleFunc) millrace.HandleFunc {
	marks := make([][]byte, 0, 2)
	for _, field := range t.propagator.Fields() {
		marks = append(marks, []byte(field))
	}
	return func(ctx context.Context, events []event.Envelope) error {
		id, _ := millrace.ProjectionFrom(ctx)
		options := []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(append(handleAttributes(id, events), t.attributes...)...),
		}
		ctx, links := t.origins(ctx, events, marks)
		ctx, span := t.tracer.Start(ctx, "process "+id.Name, append(options, trace.WithLinks(links...))...)
		defer span.End()
		err := next(ctx, events)
		if err != nil {
			setError(span, err)
		}
		return err
	}
}

func handleAttributes(id millrace.ProjectionID, events []event.Envelope) []attribute.KeyValue {
	attributes := []attribute.KeyValue{keySystem.String("millrace"), keyOperation.String("process"),
		keyKind.String("process"),
		keyGroup.String(id.Name), keyTenant.String(id.Tenant), keyProjection.String(id.Name), keyCount.Int(len(events))}
	if id.Partition != 0 {
		attributes = append(attributes, keyPartition.Int(id.Partition))
	}
	if len(events) == 1 {
		e := &events[0]
		attributes = append(attributes, keyStream.String(e.Stream), keyEventType.String(e.Type),
			keyPosition.Int64(e.Position))
	}
	return attributes
}

// origins returns the context whose span is the parent of the call, and the links of its span. A single event continues
// its trace, and then the span of ctx, if any, is a link.
func (t *Telemetry) origins(ctx context.Context, events []event.Envelope,
	marks [][]byte) (context.Context, []trace.Link) {
	if len(events) == 1 {
		origin := t.origin(events[0], marks)
		if !origin.IsValid() {
			return ctx, nil
		}
		var links []trace.Link
		if here := trace.SpanContextFromContext(ctx); here.IsValid() {
			links = append(links, trace.Link{SpanContext: here})
		}
		return trace.ContextWithRemoteSpanContext(ctx, origin), links
	}
	type key struct {
		trace trace.TraceID
		span  trace.SpanID
	}
	seen := make(map[key]bool)
	var links []trace.Link
	for i := range events {
		if len(links) == t.maxLinks {
			break
		}
		origin := t.origin(events[i], marks)
		if k := (key{origin.TraceID(), origin.SpanID()}); origin.IsValid() && !seen[k] {
			seen[k] = true
			links = append(links, trace.Link{SpanContext: origin})
		}
	}
	return ctx, links
}

// origin returns the span of the event's append. It is not valid if the headers of the event have none.
func (t *Telemetry) origin(e event.Envelope, marks [][]byte) trace.SpanContext {
	for _, mark := range marks {
		if bytes.Contains(e.RawHeaders, mark) {
			return trace.SpanContextFromContext(t.propagator.Extract(context.Background(),
				propagation.MapCarrier(e.Headers())))
		}
	}
	return trace.SpanContext{}
}

func setError(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
