// Package redact says what an event has in place of the body and the headers that were removed from it.
package redact

import (
	"bytes"
	"encoding/json"
	"time"
)

// Body is the body of a redacted event, and Text what stands in place of an error that may quote one. A string fits no
// struct, so a program that does not know redacted events fails instead of reading zero values.
const (
	Body = `"redacted"`
	Text = "redacted"
)

// member begins the headers of a redacted event. The headers of other events have strings only, so none has an object
// here.
var member = []byte(`{"redacted":`)

// Headers returns the headers of an event that is redacted at a time.
func Headers(at time.Time) string {
	headers, _ := json.Marshal(map[string]map[string]time.Time{"redacted": {"at": at.UTC()}})
	return string(headers)
}

// Only reports whether valid headers have no member beside that of Headers. jsonb orders the members of an object, and
// keeps the last one of equal members: with others, Is would differ between the stores.
func Only(headers []byte) bool {
	var value json.RawMessage
	d := json.NewDecoder(bytes.NewReader(headers))
	for range 2 { // the brace and the name
		_, _ = d.Token()
	}
	return d.Decode(&value) == nil && !d.More()
}

// Is reports whether headers, as a store returns them, are those of a redacted event.
func Is(headers []byte) bool {
	value, found := bytes.CutPrefix(headers, member)
	return found && bytes.HasPrefix(bytes.TrimLeft(value, " "), []byte("{"))
}
