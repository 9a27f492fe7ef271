package engine

// NextCommand has the next command for dead letters, nil if there is none. Parked and ParkedStreams are as in Lease.
type NextCommand struct {
	Command       *Command
	Parked        int64
	ParkedStreams bool
}

// Command is a user's command for dead letters. The holder of the lease carries it out.
type Command struct {
	ID int64
	// Replay reports whether the dead letters are replayed. Otherwise they are discarded.
	Replay bool
}

// ReplayRequest asks for the next replay of a command.
type ReplayRequest struct {
	Command int64
	// LastBegun is the dead letter whose replay the caller began last, without an outcome: its process did not crash.
	LastBegun int64
	// Types are those that the projection handles, none for all. AnyOrder is that of Policy.
	Types    []string
	AnyOrder bool
}

// Replay is one replay of a dead letter that has begun.
type Replay struct {
	Command    int64
	DeadLetter int64
	Position   int64
	Stream     string
	// Begun counts the replays of the dead letter that began and have no outcome, this one included.
	Begun int
	// Attempts counts the failures of its event before this replay.
	Attempts int
	// OutOfOrder reports that the replay did not begin, since the projection has handled a later event of the stream.
	OutOfOrder bool
}

// replaysBegun is how many owners in a row may end at the replay of a dead letter before it is given up.
const replaysBegun = 2

// Deadly reports whether so many owners ended at the replay that this command does not try it again.
func (r Replay) Deadly() bool { return r.Begun > replaysBegun }

// FailedReplay is a replay that failed.
type FailedReplay struct {
	Replay
	// Attempt is the number of the attempt, 0 if it is not counted.
	Attempt int
	Err     error
	Stack   string
	// Halt is why the projection stops until a user resumes it, empty if it does not.
	Halt string
}

// CommandKind is a kind of command for dead letters.
type CommandKind string

const (
	ReplayCommand  CommandKind = "replay"
	DiscardCommand CommandKind = "discard"
)

// CommandPart is a command for one partition. Row is the row of its lease. Done and Failed are its result so far.
// Unowned reports that it can run without a handler, and that no living node owns the lease. If Refused is set, it is
// no part of the command: Failed counts the dead letters of Stream, and perhaps of others, whose replay was refused.
type CommandPart struct {
	ID           int64
	Row          int32
	Ended        bool
	Done, Failed int64
	Refused      bool
	Stream       string
	Unowned      bool
}
