package millraceotel

import "go.opentelemetry.io/otel/metric"

// maker makes instruments that add always, if it is not nil, to what they measure. It keeps the first error.
type maker struct {
	meter  metric.Meter
	always metric.MeasurementOption
	err    error
}

func (m *maker) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.keep(err)
	if m.always != nil {
		return attributedCount{c, m.always}
	}
	return c
}

// total makes a counter of seconds.
func (m *maker) total(name, description string) metric.Float64Counter {
	c, err := m.meter.Float64Counter(name, metric.WithUnit("s"), metric.WithDescription(description))
	m.keep(err)
	if m.always != nil {
		return attributedTotal{c, m.always}
	}
	return c
}

func (m *maker) seconds(name, description string, bounds []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...))
	m.keep(err)
	if m.always != nil {
		return attributedSeconds{h, m.always}
	}
	return h
}

func (m *maker) sizes(name, unit, description string) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(sizes...))
	m.keep(err)
	if m.always != nil {
		return attributedSizes{h, m.always}
	}
	return h
}

func (m *maker) gauge(name, unit, description string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.keep(err)
	return g
}

func (m *maker) age(name, description string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
	m.keep(err)
	return g
}

var (
	// short are the bounds of times within one machine, work those of work, and ages those of waits that may take long.
	short = []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5}
	work  = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	ages  = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
	sizes = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000}
)
