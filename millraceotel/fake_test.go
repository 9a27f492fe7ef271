package millraceotel_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/millrace-go/millrace/millraceotel"
)

// fakeMeter records the instruments that are made, and what is measured.
type fakeMeter struct {
	noop.Meter
	mu       sync.Mutex
	made     map[string]instrument
	measured []measurement
	callback []metric.Callback
}

// instrument is an instrument as the documentation lists it.
type instrument struct{ kind, unit, description string }

// measurement is one value with its attributes.
type measurement struct {
	name       string
	value      float64
	attributes attribute.Set
}

func newMeter() *fakeMeter { return &fakeMeter{made: make(map[string]instrument)} }

type meterProvider struct {
	noop.MeterProvider
	meter *fakeMeter
}

func (p meterProvider) Meter(string, ...metric.MeterOption) metric.Meter { return p.meter }

func (f *fakeMeter) add(name string, value float64, attributes attribute.Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.measured = append(f.measured, measurement{name, value, attributes})
}

// take returns what was measured since the last call.
func (f *fakeMeter) take() []measurement {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.measured
	f.measured = nil
	return taken
}

func (f *fakeMeter) Int64Counter(name string, options ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c := metric.NewInt64CounterConfig(options...)
	f.made[name] = instrument{"counter", c.Unit(), c.Description()}
	return fakeCounter{f: f, name: name}, nil
}

func (f *fakeMeter) Float64Counter(name string, options ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	c := metric.NewFloat64CounterConfig(options...)
	f.made[name] = instrument{"counter", c.Unit(), c.Description()}
	return fakeTotal{f: f, name: name}, nil
}

func (f *fakeMeter) Float64Histogram(name string, options ...metric.Float64HistogramOption) (metric.Float64Histogram,
	error) {
	c := metric.NewFloat64HistogramConfig(options...)
	f.made[name] = instrument{"histogram", c.Unit(), c.Description()}
	return fakeSeconds{f: f, name: name}, nil
}

func (f *fakeMeter) Int64Histogram(name string, options ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	c := metric.NewInt64HistogramConfig(options...)
	f.made[name] = instrument{"histogram", c.Unit(), c.Description()}
	return fakeSizes{f: f, name: name}, nil
}

func (f *fakeMeter) Int64ObservableGauge(name string,
	options ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	c := metric.NewInt64ObservableGaugeConfig(options...)
	f.made[name] = instrument{"gauge", c.Unit(), c.Description()}
	return fakeGauge{name: name}, nil
}

func (f *fakeMeter) Float64ObservableGauge(name string,
	options ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	c := metric.NewFloat64ObservableGaugeConfig(options...)
	f.made[name] = instrument{"gauge", c.Unit(), c.Description()}
	return fakeAge{name: name}, nil
}

func (f *fakeMeter) RegisterCallback(callback metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	f.callback = append(f.callback, callback)
	return noop.Registration{}, nil
}

// collect calls the callbacks, and returns what they observed.
func (f *fakeMeter) collect(t *testing.T) []measurement {
	t.Helper()
	for _, callback := range f.callback {
		if err := callback(t.Context(), fakeObserver{f: f}); err != nil {
			t.Fatal(err)
		}
	}
	return f.take()
}

type fakeCounter struct {
	noop.Int64Counter
	f    *fakeMeter
	name string
}

func (c fakeCounter) Add(_ context.Context, n int64, options ...metric.AddOption) {
	c.f.add(c.name, float64(n), metric.NewAddConfig(options).Attributes())
}

type fakeSeconds struct {
	noop.Float64Histogram
	f    *fakeMeter
	name string
}

func (h fakeSeconds) Record(_ context.Context, n float64, options ...metric.RecordOption) {
	h.f.add(h.name, n, metric.NewRecordConfig(options).Attributes())
}

type fakeTotal struct {
	noop.Float64Counter
	f    *fakeMeter
	name string
}

func (c fakeTotal) Add(_ context.Context, n float64, options ...metric.AddOption) {
	c.f.add(c.name, n, metric.NewAddConfig(options).Attributes())
}

type fakeSizes struct {
	noop.Int64Histogram
	f    *fakeMeter
	name string
}

func (h fakeSizes) Record(_ context.Context, n int64, options ...metric.RecordOption) {
	h.f.add(h.name, float64(n), metric.NewRecordConfig(options).Attributes())
}

type fakeGauge struct {
	noop.Int64ObservableGauge
	name string
}

type fakeAge struct {
	noop.Float64ObservableGauge
	name string
}

type fakeObserver struct {
	noop.Observer
	f *fakeMeter
}

func (o fakeObserver) ObserveInt64(g metric.Int64Observable, n int64, options ...metric.ObserveOption) {
	o.f.add(g.(fakeGauge).name, float64(n), metric.NewObserveConfig(options).Attributes())
}

func (o fakeObserver) ObserveFloat64(g metric.Float64Observable, n float64, options ...metric.ObserveOption) {
	o.f.add(g.(fakeAge).name, n, metric.NewObserveConfig(options).Attributes())
}

// fakeTracer records spans.
type fakeTracer struct {
	tracenoop.Tracer
	spans []*fakeSpan
}

type fakeSpan struct {
	tracenoop.Span
	name    string
	config  trace.SpanConfig
	parent  trace.SpanContext
	context trace.SpanContext
	status  codes.Code
	ended   bool
}

type tracerProvider struct {
	tracenoop.TracerProvider
	tracer *fakeTracer
}

func (p tracerProvider) Tracer(string, ...trace.TracerOption) trace.Tracer { return p.tracer }

func (f *fakeTracer) Start(ctx context.Context, name string,
	options ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanContextFromContext(ctx)
	s := &fakeSpan{name: name, config: trace.NewSpanStartConfig(options...), parent: parent}
	n := byte(len(f.spans) + 1)
	id := trace.TraceID{n}
	if parent.IsValid() {
		id = parent.TraceID()
	}
	s.context = trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: trace.SpanID{n}, TraceFlags: trace.FlagsSampled,
	})
	f.spans = append(f.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *fakeSpan) SpanContext() trace.SpanContext      { return s.context }
func (s *fakeSpan) SetStatus(code codes.Code, _ string) { s.status = code }
func (s *fakeSpan) End(...trace.SpanEndOption)          { s.ended = true }

// attribute returns an attribute of the span as text.
func (s *fakeSpan) attribute(key string) string {
	for _, a := range s.config.Attributes() {
		if string(a.Key) == key {
			return fmt.Sprint(a.Value.AsInterface())
		}
	}
	return ""
}

func newTelemetry(t *testing.T, o millraceotel.Options) (*millraceotel.Telemetry, *fakeMeter, *fakeTracer) {
	t.Helper()
	meter, tracer := newMeter(), &fakeTracer{}
	o.MeterProvider, o.TracerProvider = meterProvider{meter: meter}, tracerProvider{tracer: tracer}
	telemetry, err := millraceotel.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return telemetry, meter, tracer
}
