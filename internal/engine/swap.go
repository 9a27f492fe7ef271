package engine

import "time"

// SwapOptions are the options of an operation of the kind OperationSwap.
type SwapOptions struct {
	// CatchUp limits how long the swap waits for the version: from when the first node takes the operation, before it
	// holds the earlier version, and again while it holds that.
	CatchUp time.Duration
	// AllowParked lets the version take its place although events of it are parked.
	AllowParked bool
}
