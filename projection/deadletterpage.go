package projection

// DeadLetterPage selects the dead letters that are listed. The zero value lists the oldest 100 that are parked.
type DeadLetterPage struct {
	DeadLetterFilter
	// States are the states of the dead letters. Default: parked and replaying.
	States []DeadLetterState
	// NewestFirst lists the highest positions first.
	NewestFirst bool
	// After is the position of the last dead letter of the previous page. 0 is the first page.
	After int64
	// Limit is the maximum number of dead letters in the page. Default 100.
	Limit int
}

// CommandResult is the result of a replay or a discard.
type CommandResult struct {
	// Command is the command's number, which Wait and Cancel take.
	Command int64 `json:"command"`
	// Done counts the dead letters that were resolved or discarded. Failed counts those whose replay failed.
	Done   int64 `json:"done"`
	Failed int64 `json:"failed"`
	// Refused are the replays that were refused, nil if none was.
	Refused *Refused `json:"refused,omitempty"`
}

// Refused are replays that were refused because the projection has handled later events of the streams. Their dead
// letters stay parked. See DeadLetterFilter.OutOfOrder.
type Refused struct {
	// Events counts the refused replays. Streams are the streams of the first of them, at most 10.
	Events  int64    `json:"events"`
	Streams []string `json:"streams"`
}
