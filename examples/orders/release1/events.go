// Package release1 has the events of the first release, as they are stored. Those that later releases changed are read
// by their upcasters.
package release1

// The events of an order.
type (
	OrderPlaced struct {
		Customer string `json:"customer"`
		Cents    int64  `json:"cents"`
	}
	OrderPaid struct {
		Reference string `json:"reference"`
	}
	OrderCancelled struct {
		Reason string `json:"reason"`
	}
)

func (OrderPlaced) EventType() string    { return "OrderPlaced" }
func (OrderPaid) EventType() string      { return "OrderPaid" }
func (OrderCancelled) EventType() string { return "OrderCancelled" }
