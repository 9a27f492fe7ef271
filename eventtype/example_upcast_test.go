package eventtype_test

import (
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
)

type Renamed struct {
	Name string `json:"name"`
}

func (Renamed) EventType() string { return "CustomerRenamed" }

type NameChanged struct {
	First string `json:"first"`
	Last  string `json:"last"`
}

func (NameChanged) EventType() string { return "CustomerRenamed.v2" }

// A test of an upcaster needs no store. An event for which it cannot work is named.
func ExampleTypes_Upcast() {
	types, err := eventtype.New(eventtype.Upcast(func(old Renamed) (c NameChanged, err error) {
		_, err = fmt.Sscanf(old.Name, "%s %s", &c.First, &c.Last)
		return c, err
	}))
	if err != nil {
		panic(err)
	}
	for i, name := range []string{"Ada Lovelace", "Plato"} {
		e := event.Envelope{
			Position: int64(i + 1), Stream: "customer-1", Type: "CustomerRenamed",
			Body: fmt.Appendf(nil, `{"name": %q}`, name),
		}
		current, err := types.Upcast(e)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(current[0].Type, string(current[0].Body))
	}
	// Output:
	// CustomerRenamed.v2 {"first":"Ada","last":"Lovelace"}
	// decode event 2 (CustomerRenamed of stream "customer-1") as CustomerRenamed.v2: the upcaster failed at "CustomerRenamed": EOF
}
