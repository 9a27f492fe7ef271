package projection

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/event"
)

// DeadLetters gives access to the parked events of a projection, in all of its partitions or in one. The method
// DeadLetters of a store returns it. It is safe for concurrent use, in any process: the owner of the projection's lease
// makes all changes.
//
// All methods return tenancy.ErrUnknown or ErrUnknownProjection if there is no such projection. A projection exists
// after its first run. More methods may be added.
type DeadLetters interface {
	// List returns dead letters in order of their positions.
	List(ctx context.Context, page DeadLetterPage) ([]DeadLetter, error)
	// Get returns a dead letter in any state, and its event as stored. It returns ErrDeadLetterNotFound if the
	// projection has no dead letter with that id. If the event is gone, it returns the dead letter and ErrEventGone. If
	// the store cannot read the event, it returns the dead letter, the event without its body, and an
	// *event.UnreadableError. If the read fails otherwise, it returns the dead letter and the error.
	Get(ctx context.Context, id int64) (DeadLetter, event.Envelope, error)
	// Count counts dead letters in these states. Without states it counts parked and replaying ones.
	Count(ctx context.Context, filter DeadLetterFilter, states ...DeadLetterState) (int64, error)
	// Replay applies at most limit parked events again, the oldest first, by the projection's handler on the node that
	// runs it. Each event is a fenced transaction of its own, which does not move the checkpoint. A parked stream is
	// replayed as a whole and in order, including events that the filter does not select. After its last event, the
	// stream continues like any other. If a replay fails, the event stays parked with one attempt more, and so do the
	// later events of its stream. An event is applied once, even if several replays select it.
	//
	// An event is refused if the projection has handled later events of its stream, as it does after ActionPark: it
	// would be applied after them. It stays parked, and CommandResult counts it. If all events that were selected are
	// refused, Replay also returns an error that wraps ErrOutOfOrder. A later event counts if the projection selects it
	// and it is not parked itself. The filter's OutOfOrder and Projection.AnyOrder allow such replays. If an event of a
	// parked stream is refused, the events after it stay parked, as they do if a replay fails.
	//
	// Replay returns after the last event. It waits while the projection is paused or no node runs it. If ctx ends
	// first, it returns ErrCommandPending, and the replay continues unless Cancel ends it. If the connection fails
	// while the command is sent, the command may have been accepted or not.
	Replay(ctx context.Context, filter DeadLetterFilter, limit int) (CommandResult, error)
	// Discard gives up at most limit parked events: they will not be applied. Later events of their streams stay
	// parked. If no node owns the projection's lease, for instance while it is paused, Discard runs at once. Otherwise
	// it waits as Replay does, but not for an open circuit breaker.
	Discard(ctx context.Context, filter DeadLetterFilter, limit int) (CommandResult, error)
	// Purge deletes dead letters that were resolved or discarded at least endedFor ago, at most limit of them, the
	// oldest first, except discarded ones whose stream is parked. It returns how many it deleted.
	Purge(ctx context.Context, filter DeadLetterFilter, endedFor time.Duration, limit int) (deleted int64, err error)
	// Wait waits for a command as Replay and Discard do. command is CommandResult.Command of their results. With the
	// context of a transaction of the store, it returns ErrWithinTx if the command has not ended, as the calls that
	// write do.
	Wait(ctx context.Context, command int64) (CommandResult, error)
	// Cancel ends a command. command is CommandResult.Command of the result of Replay or Discard. Completed work stays,
	// and a replay in progress finishes first. Wait, Replay and Discard then return the result so far. If a process
	// crashes during a replay, the dead letter is parked again. Cancel has no effect on a command that has ended. It
	// returns ErrCommandNotFound if there is no such command.
	Cancel(ctx context.Context, command int64) error
}
