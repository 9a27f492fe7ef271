package eventtype_test

import (
	"encoding/json"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
)

type Shipped struct {
	Parcel string `json:"parcel"`
}

func (Shipped) EventType() string { return "Shipped" }

// A service appends what a partner sends, if the program could have appended it.
func ExampleTypes_Check() {
	types, err := eventtype.New(eventtype.Of[Shipped]())
	if err != nil {
		panic(err)
	}
	for _, sent := range []event.Event{
		event.Untyped("Shipped", json.RawMessage(`{"parcel": "p-1"}`)),
		event.Untyped("Shipped", json.RawMessage(`{"parcell": "p-1"}`)),
		event.Untyped("Shiped", json.RawMessage(`{"parcel": "p-1"}`)),
	} {
		fmt.Println(types.Check(sent))
	}
	// Output:
	// <nil>
	// decode the body of an event of type Shipped as eventtype_test.Shipped at parcell: the type has no such field
	// event type "Shiped" is not registered
}
