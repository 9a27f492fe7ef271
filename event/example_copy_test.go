package event_test

import (
	"encoding/json"
	"fmt"

	"github.com/millrace-go/millrace/event"
)

// A copy of an event has the same body and headers. The copy of a redacted event is redacted.
func ExampleEnvelope_Event() {
	stored := event.Envelope{Position: 7, Stream: "order-17", Version: 1, Type: "Commented",
		Body:       json.RawMessage(`"redacted"`),
		RawHeaders: json.RawMessage(`{"redacted":{"at":"2026-11-28T13:30:00Z"}}`)}
	copied := stored.Event()
	headers, err := copied.RawHeaders()
	fmt.Println(copied.Type, stored.Redacted(), string(headers), err)
	// Output:
	// Commented true {"redacted":{"at":"2026-11-28T13:30:00Z"}} <nil>
}
