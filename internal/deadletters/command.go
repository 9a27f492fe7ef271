package deadletters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// The delays between two polls for the end of a command.
const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = 200 * time.Millisecond
)

func (d *DeadLetters) Replay(ctx context.Context, filter projection.DeadLetterFilter,
	limit int) (projection.CommandResult, error) {
	return d.command(ctx, engine.ReplayCommand, filter, limit)
}

func (d *DeadLetters) Discard(ctx context.Context, filter projection.DeadLetterFilter,
	limit int) (projection.CommandResult, error) {
	return d.command(ctx, engine.DiscardCommand, filter, limit)
}

// command starts a command and waits for its result.
func (d *DeadLetters) command(ctx context.Context, kind engine.CommandKind, filter projection.DeadLetterFilter,
	limit int) (_ projection.CommandResult, err error) {
	defer d.explain(&err, string(kind))
	command, err := d.Start(ctx, kind, filter, limit)
	if err != nil {
		return projection.CommandResult{}, err
	}
	return d.wait(ctx, command)
}

// Start starts a command and returns its number. The owners of the leases run it.
func (d *DeadLetters) Start(ctx context.Context, kind engine.CommandKind, filter projection.DeadLetterFilter,
	limit int) (command int64, err error) {
	replays := filter
	if kind == engine.ReplayCommand {
		replays.OutOfOrder = false
	}
	if err := bounded(replays, limit); err != nil {
		return 0, err
	}
	return d.plane.Insert(ctx, d.id, kind, filter, limit)
}

func (d *DeadLetters) Wait(ctx context.Context, command int64) (_ projection.CommandResult, err error) {
	defer d.explain(&err, "wait for a command on")
	return d.wait(ctx, command)
}

func (d *DeadLetters) Cancel(ctx context.Context, command int64) (err error) {
	defer d.explain(&err, fmt.Sprintf("cancel command %d on", command))
	parts, err := d.plane.Cancel(ctx, d.id, command)
	switch {
	case err != nil:
		return err
	case len(parts) == 0:
		return projection.ErrCommandNotFound
	}
	return d.runUnowned(ctx, parts)
}

// Result returns the result of a command so far, by its parts, and whether it has ended.
func Result(command int64, parts []engine.CommandPart) (result projection.CommandResult, ended bool) {
	result.Command, ended = command, true
	for _, part := range parts {
		ended = ended && part.Ended
		if part.Refused {
			if result.Refused == nil {
				result.Refused = &projection.Refused{}
			}
			result.Refused.Events += part.Failed
			result.Refused.Streams = append(result.Refused.Streams, part.Stream)
			continue
		}
		result.Done, result.Failed = result.Done+part.Done, result.Failed+part.Failed
	}
	if result.Refused != nil {
		slices.Sort(result.Refused.Streams)
	}
	return result, ended
}

// refused returns projection.ErrOutOfOrder if a command did nothing but refuse replays. The text names the streams and
// what to do.
func refused(r projection.CommandResult) error {
	if r.Refused == nil || r.Done+r.Failed > 0 {
		return nil
	}
	streams := make([]string, len(r.Refused.Streams))
	for i, stream := range r.Refused.Streams {
		streams[i] = excerpt.Quoted(stream)
	}
	return fmt.Errorf("%w: refused events: %d, of streams: %s; rebuild the projection, or replay out of order if its handler does not mind the order",
		projection.ErrOutOfOrder, r.Refused.Events, strings.Join(streams, ", "))
}

// runUnowned runs the open parts of a command that call no handler, if no living node owns their leases.
func (d *DeadLetters) runUnowned(ctx context.Context, parts []engine.CommandPart) error {
	for _, part := range parts {
		if part.Ended || !part.Unowned {
			continue
		}
		if err := d.plane.RunUnowned(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// wait polls for the result of a command, also during an outage of the database. It runs a command that calls no
// handler itself if no node owns the lease. Within a transaction it does not wait: the command may need what the
// transaction holds.
func (d *DeadLetters) wait(ctx context.Context, command int64) (projection.CommandResult, error) {
	result := projection.CommandResult{Command: command}
	if err := engine.Storable(d.id); err != nil {
		return result, err
	}
	var unowned error
	err := backoff.Poll(ctx, firstPoll, lastPoll, func() (ended bool, _ error) {
		parts, err := d.plane.Parts(ctx, d.id, command)
		switch {
		case err != nil && d.plane.Classify(err).OfStore().Passes():
		case err != nil:
			return false, fmt.Errorf("%w: %w", projection.ErrCommandPending, d.plane.Classify(err).OfStore())
		case len(parts) == 0:
			// The projection may have been renamed, and its commands with it.
			d, err = d.renamed(ctx)
			if err != nil {
				return false, err
			}
		default:
			result, ended = Result(command, parts)
			if ended {
				return true, refused(result)
			}
			if err := d.store.NotWithin(ctx); err != nil {
				return false, fmt.Errorf("%w: %w", projection.ErrCommandPending, err)
			}
			unowned = d.runUnowned(ctx, parts)
		}
		return ended, nil
	})
	if err != nil && err == ctx.Err() {
		err = fmt.Errorf("%w: %w", projection.ErrCommandPending, errors.Join(err, unowned))
	}
	if err != nil {
		return result, fmt.Errorf("command %d: %w", command, err)
	}
	return result, nil
}

// renamed returns the dead letters of a projection that was renamed, and otherwise an error: it has no such command.
// During an outage it returns d.
func (d *DeadLetters) renamed(ctx context.Context) (*DeadLetters, error) {
	err := d.plane.Known(ctx, d.id)
	var retired *engine.Retired
	switch {
	case errors.As(err, &retired) && retired.Reason == engine.Renamed:
		id := d.id
		id.Name = retired.Successor
		return &DeadLetters{d.plane, d.store, id}, nil
	case errors.Is(err, projection.ErrRetired):
		return d, err
	case err != nil && d.plane.Classify(err).OfStore().Passes():
		return d, nil
	}
	return d, projection.ErrCommandNotFound
}
