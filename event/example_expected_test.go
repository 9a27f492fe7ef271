package event_test

import (
	"fmt"

	"github.com/millrace-go/millrace/event"
)

// An append says in which state its stream must be. With a key it can be repeated safely.
func ExampleExpected() {
	for _, e := range []event.Expected{event.Any, event.NoStream, event.Exact(7),
		event.Exact(7).WithKey("command-77")} {
		version, exact := e.Version()
		key, _ := e.Key()
		fmt.Println(e, version, exact, key, e.Validate())
	}
	// Output:
	// any version 0 false  <nil>
	// no stream 0 true  <nil>
	// version 7 7 true  <nil>
	// version 7 7 true command-77 <nil>
}
