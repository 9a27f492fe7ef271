package event

import "time"

// StreamInfo describes a stream.
type StreamInfo struct {
	// ID is the stream's id.
	ID string `json:"id"`
	// Version is the version of the stream's last event, also if that event was deleted. It is 0 if the stream does not
	// exist.
	Version int64 `json:"version"`
	// Created and LastEvent are the Envelope.Time of the stream's first and last event, of those that were not deleted.
	// They are the zero time if there is none.
	Created   time.Time `json:"created,omitzero"`
	LastEvent time.Time `json:"lastEvent,omitzero"`
}
