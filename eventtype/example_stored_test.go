package eventtype_test

import (
	"fmt"

	"github.com/millrace-go/millrace/eventtype"
)

// A report reads the table of events by SQL. It needs the names that earlier releases have used.
func ExampleTypes_Stored() {
	types, err := eventtype.New(
		eventtype.Named("OrderCancelled"),
		eventtype.Renamed("order_cancelled", "OrderCancelled"),
		eventtype.Renamed("OrderCanceled", "OrderCancelled"),
	)
	if err != nil {
		panic(err)
	}
	fmt.Println(types.Stored("OrderCancelled"))
	fmt.Println(types.Stored("OrderCanceled"))
	// Output:
	// [OrderCanceled OrderCancelled order_cancelled] <nil>
	// [] event type "OrderCanceled" is outdated: it becomes "OrderCancelled"
}
