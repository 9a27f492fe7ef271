package eventtype_test

import (
	"fmt"

	"github.com/millrace-go/millrace/eventtype"
)

type Placed struct{}

func (Placed) EventType() string { return "OrderPlaced" }

type PlacedV3 struct{}

func (PlacedV3) EventType() string { return "OrderPlaced.v3" }

// A program whose registry has mistakes does not start. The error names all of them.
func ExampleNew() {
	_, err := eventtype.New(
		eventtype.Of[Placed](),
		eventtype.Of[PlacedV3](),
		eventtype.Renamed("order_cancelled", "OrderCanceled"),
		eventtype.Named("OrderCancelled"),
	)
	fmt.Println(err)
	// Output:
	// event types: the upcaster of event type "order_cancelled" leads to "OrderCanceled", which is not registered
	// event type "OrderPlaced" has no upcaster, although "OrderPlaced.v3" is newer
}
