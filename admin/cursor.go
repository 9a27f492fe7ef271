package admin

import (
	"encoding/base64"
	"encoding/json"
	"errors"

	"github.com/millrace-go/millrace/projection"
)

// cursor is the place of a projection in an order. Its text is opaque to users.
type cursor struct {
	Sort Sort `json:"s,omitempty"`
	// Key is what the projection is sorted by: how far it is behind, or when the oldest event that it has not handled
	// was inserted, in microseconds since 1970. It is nil if there is no such event.
	Key *int64        `json:"k,omitempty"`
	ID  projection.ID `json:"i"`
}

// String returns the text of a cursor, empty for nil.
func (c *cursor) String() string {
	if c == nil {
		return ""
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // numbers and texts are always encoded
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// readCursor returns nil for an empty text.
func readCursor(text string, sort Sort) (*cursor, error) {
	if text == "" {
		return nil, nil
	}
	unreadable := errors.New("must be the Next of a Status")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, unreadable
	}
	var c cursor
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, unreadable
	}
	switch {
	case c.ID.Name == "" || c.ID.Tenant == "":
		return nil, unreadable
	case c.Sort != sort:
		return nil, errors.New("must be the Next of a Status with the same Sort")
	case c.Sort == SortByBehind && c.Key == nil:
		return nil, unreadable
	}
	return &c, nil
}
