package event_test

import (
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/event"
)

// A conflict has the actual version of the stream, so that the caller can read the new events and decide again.
func ExampleVersionConflictError() {
	err := fmt.Errorf("place the order: %w", &event.VersionConflictError{Stream: "order-1",
		Expected: event.Exact(2), Actual: 3})
	var conflict *event.VersionConflictError
	if errors.As(err, &conflict) {
		fmt.Println("read", conflict.Stream, "from version", 3, "on, which is at", conflict.Actual)
	}
	fmt.Println(errors.Is(err, event.ErrVersionConflict))
	// Output:
	// read order-1 from version 3 on, which is at 3
	// true
}
