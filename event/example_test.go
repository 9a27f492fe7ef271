package event_test

import (
	"fmt"

	"github.com/millrace-go/millrace/event"
)

type OrderPlaced struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

func (OrderPlaced) EventType() string { return "OrderPlaced" }

// A Go type names the type of its events, and is encoded as JSON. As decodes it. Without a Go type, Untyped and Decode
// do the same.
func Example() {
	placed := event.New(OrderPlaced{Customer: "Ada", Cents: 42_50})
	fmt.Println(placed.Type, string(placed.Body), placed.Validate())

	stored := event.Envelope{Position: 7, Stream: "order-1", Version: 1, Type: placed.Type, Body: placed.Body}
	order, err := event.As[OrderPlaced](stored)
	fmt.Println(order.Body.Cents, "at position", order.Position, err)

	stored.Type, stored.Body = "OrderShipped", event.Untyped("OrderShipped", map[string]string{"by": "ship"}).Body
	var shipped struct{ By string }
	fmt.Println(stored.Decode(&shipped), shipped.By)
	// Output:
	// OrderPlaced {"customer":"Ada","cents":4250} <nil>
	// 4250 at position 7 <nil>
	// <nil> ship
}
