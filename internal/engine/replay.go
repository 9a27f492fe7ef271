package engine

// Replay is one replay of a dead letter that was begun.
type Replay struct {
	Command  int64
	Letter   int64
	Position int64
	Stream   string
	// Begun counts the replays of it that were begun without a word on how they ended, this one included.
	Begun int
	// Attempts counts the failures of its event before this replay.
	Attempts int
}

// replaysBegun is how many owners in a row may end at the replay of a dead letter before it is given up.
const replaysBegun = 2

// Deadly tells that so many owners ended at the replay that it is not to be tried again in this command.
func (r Replay) Deadly() bool { return r.Begun > replaysBegun }

// FailedReplay is a replay that failed.
type FailedReplay struct {
	Replay
	// Attempt is the number of the attempt, 0 if it is not counted.
	Attempt int
	Err     error
	Stack   string
}
