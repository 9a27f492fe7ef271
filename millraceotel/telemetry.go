package millraceotel

import (
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace-go/millrace/projection"
)

// scope is the name of the instrumentation.
const scope = "github.com/millrace-go/millrace/millraceotel"

// defaultLinks is the limit of links that SDKs have by default.
const defaultLinks = 128

// Options configure a Telemetry. The zero value means the defaults.
type Options struct {
	// MeterProvider and TracerProvider receive the metrics and the spans. Default: the global ones of package otel.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// Propagator writes the trace context into the headers of events and reads it. Headers are stored for good, so a
	// propagator of baggage would store baggage for good. Default: propagation.TraceContext, the headers traceparent
	// and tracestate of W3C.
	Propagator propagation.TextMapPropagator
	// MaxLinks is the maximum number of links of the span of a call with several events. Default 128.
	MaxLinks int
	// Tenants adds the attribute millrace.tenant to the metrics of projections, feeds and settled marks. Then the
	// number of time series grows with the number of tenants. Default: no metric names a tenant.
	Tenants bool
	// Attributes are added to all metrics and spans. If a process has several runtimes, give each a Telemetry with an
	// attribute of its own, such as millrace.store with the name of the store; the alerts and the dashboard of docs
	// group by it. Otherwise their counts are added up, and of their gauges only one is seen. Attributes of the
	// library's own are refused. Default: none.
	Attributes []attribute.KeyValue
}

// Telemetry reports to OpenTelemetry. It is safe for concurrent use.
type Telemetry struct {
	meter      metric.Meter
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	maxLinks   int
	tenants    bool
	metrics    metrics
	gauges     gauges
	// attributes are those of Options, and always is the option that adds them, nil without any.
	attributes []attribute.KeyValue
	always     metric.MeasurementOption

	watching             sync.Mutex
	ofNode, ofDeployment bool // whether WatchNode and WatchDeployment report
}

// New returns a Telemetry, with all its instruments.
func New(o Options) (*Telemetry, error) {
	if o.MaxLinks < 0 {
		return nil, fmt.Errorf("new telemetry: Options.MaxLinks must not be negative: %d", o.MaxLinks)
	}
	if err := checkAttributes(o.Attributes); err != nil {
		return nil, fmt.Errorf("new telemetry: %w", err)
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	if o.MaxLinks == 0 {
		o.MaxLinks = defaultLinks
	}
	t := &Telemetry{meter: o.MeterProvider.Meter(scope), tracer: o.TracerProvider.Tracer(scope),
		propagator: o.Propagator,
		maxLinks:   o.MaxLinks, tenants: o.Tenants, attributes: slices.Clone(o.Attributes)}
	if len(t.attributes) > 0 {
		t.always = metric.WithAttributes(t.attributes...)
	}
	instruments := maker{meter: t.meter, always: t.always}
	t.metrics, t.gauges = newMetrics(&instruments), newGauges(&instruments)
	if instruments.err != nil {
		return nil, fmt.Errorf("new telemetry: %w", instruments.err)
	}
	return t, nil
}

// The attributes of metrics and spans.
const (
	keyProjection = attribute.Key("millrace.projection.name")
	keyPartition  = attribute.Key("millrace.projection.partition")
	keyTenant     = attribute.Key("millrace.tenant")
	keyState      = attribute.Key("millrace.state")
	keyOutcome    = attribute.Key("millrace.outcome")
	keyChange     = attribute.Key("millrace.change")
	keySlot       = attribute.Key("millrace.slot")
	keyActor      = attribute.Key("millrace.actor")
	keyStream     = attribute.Key("millrace.stream")
	keyEventType  = attribute.Key("millrace.event.type")
	keyPosition   = attribute.Key("millrace.position")
	keyError      = attribute.Key("error.type")
)

// of returns the attributes of a projection's metrics.
func (t *Telemetry) of(tenant, name string, more ...attribute.KeyValue) metric.MeasurementOption {
	return t.ofTenant(tenant, append(more, keyProjection.String(name))...)
}

// ofTenant returns the attributes of a metric that may name a tenant.
func (t *Telemetry) ofTenant(tenant string, more ...attribute.KeyValue) metric.MeasurementOption {
	if t.tenants {
		more = append(more, keyTenant.String(tenant))
	}
	return metric.WithAttributes(more...)
}

func (t *Telemetry) ofProjection(id projection.ID, more ...attribute.KeyValue) metric.MeasurementOption {
	return t.of(id.Tenant, id.Name, more...)
}
