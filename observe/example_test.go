package observe_test

import (
	"fmt"

	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// Two observers get the same calls: one counts, the other is for alerts.
func ExampleJoin() {
	batches := 0
	counts := observe.Observer{BatchEnded: func(b observe.Batch) { batches++ }}
	alerts := observe.Observer{Decided: func(d observe.Decision) { fmt.Println("decided:", d.Action, d.Stream) }}
	joined := observe.Join(counts, alerts)

	joined.BatchEnded(observe.Batch{}) // as a runtime calls it
	joined.Decided(observe.Decision{Action: projection.ActionSkip, Stream: "order-1"})
	fmt.Println("batches:", batches)
	// Output:
	// decided: skip order-1
	// batches: 1
}
