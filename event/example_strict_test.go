package event_test

import (
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/event"
)

type ItemAdded struct {
	Cents int    `json:"cents"`
	Note  string `json:"note,omitzero"` // came later
}

func (ItemAdded) EventType() string { return "ItemAdded" }

// The member amount was renamed to cents. Strict refuses the events from before, which would decode to 0 cents.
func ExampleDecodeOption() {
	before := event.Envelope{Position: 7, Stream: "cart-1", Type: "ItemAdded", Body: []byte(`{"amount": 1250}`)}
	item, err := event.As[ItemAdded](before)
	fmt.Println(item.Body.Cents, err)

	_, err = event.As[ItemAdded](before, event.Strict)
	fmt.Println(err)
	fmt.Println(errors.Is(err, event.ErrUnknownField), errors.Is(err, event.ErrMissingField))
	// Output:
	// 0 <nil>
	// decode event 7 (ItemAdded of stream "cart-1") as event_test.ItemAdded at amount: the type has no such field
	// true false
}
