package machine

import (
	"time"

	"github.com/millrace-go/millrace/projection"
)

const (
	// replayTurn is how long batches wait for commands on dead letters, plus one replay. While a stream is replayed,
	// each batch may park many of its events, so with one replay between two batches a command might never end.
	replayTurn = 100 * time.Millisecond
	// backoffDoubles is how often the delay after replays without an outcome doubles at most.
	backoffDoubles = 8
)

// Commands says which commands for dead letters may be open.
type Commands int8

const (
	// NoCommands means that no command is open.
	NoCommands Commands = iota
	// ReplaysOnly means that replays may be open, but no discard.
	ReplaysOnly
	// CommandsOpen means that any command may be open.
	CommandsOpen
)

// ReplayQueue is the state of commands for dead letters and of replays. Faults of theirs do not delay batches.
type ReplayQueue struct {
	// Parked are the parked streams, as far as they are known.
	Parked   *ParkedStreams
	Commands Commands
	// Undone counts consecutive replays without an outcome.
	Undone int32
	// Seen counts the notifications of commands.
	Seen int
	// DueAt is when to check for dead letters that are due for a replay; zero means never.
	DueAt time.Time
	// BackoffUntil is the time until which no replay is made, after replays without an outcome.
	BackoffUntil time.Time
	// Turn is when batches began to wait for commands; zero means that they do not wait.
	Turn time.Time
	// Unfinished is the dead letter whose replay began last and has no outcome. 0 means none.
	Unfinished int64
	// Faults are those of the dead letter that was replayed last.
	Faults FaultHistory
}

// plan plans a check for due dead letters after the delay, unless an earlier one is planned. Without a delay it
// plans none: Replay.Interval is 0 where nothing is replayed automatically.
func (q *ReplayQueue) plan(now time.Time, delay time.Duration) {
	at := now.Add(delay)
	if delay > 0 && (q.DueAt.IsZero() || at.Before(q.DueAt)) {
		q.DueAt = at
	}
}

// due reports whether it is time to check for due dead letters.
func (q *ReplayQueue) due(now time.Time) bool { return !q.DueAt.IsZero() && !now.Before(q.DueAt) }

// batchTurn reports whether a batch has waited long enough for commands.
func (q *ReplayQueue) batchTurn(now time.Time) bool {
	return !q.Turn.IsZero() && now.Sub(q.Turn) >= replayTurn
}

// backOff begins a delay after a replay without an outcome, and returns it. It doubles with each further one.
func (q *ReplayQueue) backOff(now time.Time, base time.Duration) time.Duration {
	delay := base << min(q.Undone, backoffDoubles)
	q.Undone++
	q.BackoffUntil = now.Add(delay)
	return delay
}

// endBackoff ends the delay after replays without an outcome. No command to replay was looked up meanwhile.
func (q *ReplayQueue) endBackoff(now time.Time) {
	if q.BackoffUntil.IsZero() || now.Before(q.BackoffUntil) {
		return
	}
	q.BackoffUntil = time.Time{}
	if q.Commands == ReplaysOnly {
		q.Commands = CommandsOpen
	}
}

// replaysBlocked reports whether no handler may be called for a dead letter now. Discards are carried out all the same.
func (m *Machine) replaysBlocked(now time.Time) bool {
	breaker := m.Breaker.State()
	behind := m.Tail == nil || m.Position < m.Tail.Mark
	return now.Before(m.Replays.BackoffUntil) || breaker == projection.BreakerOpen ||
		breaker == projection.BreakerHalfOpen && behind
}

// mayReplay reports whether a command for dead letters may begin, and whether there may be one. It may begin while the
// projection waits for the feed's first message, for the next attempt at an event, for a service that the handler
// depends on, or for a user, but not while it waits for the server. While the projection is halted, nothing is replayed
// without a command.
func (m *Machine) mayReplay(now time.Time) bool {
	switch m.State.(type) {
	case AwaitingTail, Idle, Reconnecting, RetryWait, OutageWait, EventWait, Halted:
	default:
		return false
	}
	if !m.confirmed(now) {
		return false
	}
	switch m.Replays.Commands {
	case CommandsOpen:
		return true
	case ReplaysOnly:
		return !m.replaysBlocked(now)
	}
	return m.Replays.due(now) && m.Lease.Parked > 0 && !m.Lease.Halted && !m.replaysBlocked(now)
}
