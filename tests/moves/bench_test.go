package moves_test

import (
	"fmt"
	"testing"

	"github.com/millrace-go/millrace/event"
)

// BenchmarkMove moves 100,000 events: go test -run '^$' -bench Move -benchtime 1x ./tests/moves.
func BenchmarkMove(b *testing.B) {
	const events, together = 100_000, 500
	for name, stores := range directions {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				from, to := stores(b)
				acme := from.create(b, "acme")
				list := make([]event.Event, together)
				for i := range list {
					list[i] = happened
				}
				for n := range events / together {
					must(acme.Append(testContext(b), fmt.Sprint("stream-", n), event.Any, list...))(b)
				}
				b.StartTimer()
				moveIt(b, from, to, "acme", keep())
			}
			b.ReportMetric(events*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
