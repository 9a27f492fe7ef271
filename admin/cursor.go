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
	var c cursor
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	switch {
	case err != nil || c.ID.Name == "" || c.ID.Tenant == "":
		return nil, errors.New("must be the Next of a Status")
	case c.Sort != sort:
		return nil, errors.New("must be the Next of a Status with the same Sort")
	case c.Sort == SortByBehind && c.Key == nil:
		return nil, errors.New("must be the Next of a Status")
	}
	return &c, nil
}
