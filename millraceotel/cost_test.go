package millraceotel_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/millrace-go/millrace/millraceotel"
	"github.com/millrace-go/millrace/observe"
)

func BenchmarkBatchEnded(b *testing.B) {
	telemetry, err := millraceotel.New(millraceotel.Options{MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		b.Fatal(err)
	}
	ended, batch := telemetry.Observer().BatchEnded,
		observe.Batch{Projection: id, Live: true, Events: 10, Applied: 10, Oldest: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		ended(batch)
	}
}
