package event

import "errors"

// Errors about the server that keeps the events.
var (
	// ErrIncarnationChanged is returned if the server crashed, or a standby took its place, after events were read. The
	// last of them may no longer exist.
	ErrIncarnationChanged = errors.New("the server crashed or was replaced by another one")
	// ErrNotPrimary is returned if the server is a standby. No event ever settles there.
	ErrNotPrimary = errors.New("server is not the primary")
)
