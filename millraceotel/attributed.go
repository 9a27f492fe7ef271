package millraceotel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// reserved are the attributes of our own metrics and spans, which Options.Attributes may not have.
var reserved = []attribute.Key{keyProjection, keyPartition, keyTenant, keyState, keyOutcome, keyChange, keySlot,
	keyActor, keyStream, keyEventType,
	keyPosition, keyError, keyReason, keySystem, keyOperation, keyKind, keyGroup, keyCount}

// checkAttributes returns an error if an attribute is not valid, is one of ours, or is there twice.
func checkAttributes(all []attribute.KeyValue) error {
	for i, a := range all {
		switch same := func(other attribute.KeyValue) bool { return other.Key == a.Key }; {
		case !a.Valid():
			return fmt.Errorf("Options.Attributes[%d] has no name or no value", i)
		case slices.Contains(reserved, a.Key):
			return fmt.Errorf("Options.Attributes must not have %s: metrics or spans have it", a.Key)
		case slices.ContainsFunc(all[:i], same):
			return fmt.Errorf("Options.Attributes has %s twice", a.Key)
		}
	}
	return nil
}

// The instruments below add the attributes of Options.Attributes to all that is measured.
type (
	attributedCount struct {
		metric.Int64Counter
		always metric.MeasurementOption
	}
	attributedTotal struct {
		metric.Float64Counter
		always metric.MeasurementOption
	}
	attributedSeconds struct {
		metric.Float64Histogram
		always metric.MeasurementOption
	}
	attributedSizes struct {
		metric.Int64Histogram
		always metric.MeasurementOption
	}
	attributedObserver struct {
		metric.Observer
		always metric.MeasurementOption
	}
)

func (c attributedCount) Add(ctx context.Context, n int64, options ...metric.AddOption) {
	c.Int64Counter.Add(ctx, n, append(options, c.always)...)
}

func (c attributedTotal) Add(ctx context.Context, n float64, options ...metric.AddOption) {
	c.Float64Counter.Add(ctx, n, append(options, c.always)...)
}

func (h attributedSeconds) Record(ctx context.Context, n float64, options ...metric.RecordOption) {
	h.Float64Histogram.Record(ctx, n, append(options, h.always)...)
}

func (h attributedSizes) Record(ctx context.Context, n int64, options ...metric.RecordOption) {
	h.Int64Histogram.Record(ctx, n, append(options, h.always)...)
}

func (o attributedObserver) ObserveInt64(g metric.Int64Observable, n int64, options ...metric.ObserveOption) {
	o.Observer.ObserveInt64(g, n, append(options, o.always)...)
}

func (o attributedObserver) ObserveFloat64(g metric.Float64Observable, n float64, options ...metric.ObserveOption) {
	o.Observer.ObserveFloat64(g, n, append(options, o.always)...)
}

// errWatched is returned by the second of two watches whose values would have the same names and attributes.
var errWatched = errors.New("this Telemetry watches one already, and their values would replace each other: use another Telemetry with other Options.Attributes")

// watch registers a callback, until stop is called. Only one callback at a time may report these gauges.
func (t *Telemetry) watch(watched *bool, observe func(context.Context, metric.Observer) error,
	gauges ...metric.Observable) (stop func() error, err error) {
	t.watching.Lock()
	defer t.watching.Unlock()
	if *watched {
		return nil, errWatched
	}
	registration, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		if t.always != nil {
			o = attributedObserver{o, t.always}
		}
		return observe(ctx, o)
	}, gauges...)
	if err != nil {
		return nil, err
	}
	*watched = true
	ended := false
	return func() error {
		t.watching.Lock()
		defer t.watching.Unlock()
		if ended {
			return nil
		}
		ended, *watched = true, false
		return registration.Unregister()
	}, nil
}
