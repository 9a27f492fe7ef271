package projection

import "time"

// Start says where a projection begins in a tenant for which it is new. At most one field is set. The zero value means
// the first event.
type Start struct {
	// End begins after the settled mark. The projection handles no event that was settled when it was created. It
	// handles every event that becomes visible later, including events of transactions that were open at that time.
	End bool
	// Position begins with the event at that position. If the tenant's settled events end before it, the projection
	// begins at their end.
	Position int64
	// Time begins with the first event, by its position, that was appended at that time or later, and handles all
	// events after it. If there is none, the projection begins at the end. Finding the event reads the times of all
	// events before it.
	Time time.Time
}
