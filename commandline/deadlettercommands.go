package commandline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/report"
	"github.com/millrace-go/millrace/projection"
)

// letterCommand is a replay or a discard.
type letterCommand struct {
	letterFilter
	limit int
	sure  yes
}

func (l *letterCommand) add(cmd *cobra.Command) {
	l.letterFilter.add(cmd)
	cmd.Flags().BoolVar(&l.All, "all", false, "all parked events")
	cmd.Flags().IntVar(&l.limit, "limit", math.MaxInt32, "at most so many of each projection")
	cmd.Flags().Lookup("limit").DefValue = "no limit"
	cmd.Args = cobra.MinimumNArgs(1)
}

// resolve reads the ids of dead letters, which must exist, and returns the projections. A command without any filter is
// refused.
func (l *letterCommand) resolve(ctx context.Context, c *cli, s store, args []string) ([]millrace.ProjectionID, error) {
	ids, err := lettersIDs(args[1:])
	if err != nil {
		return nil, err
	}
	l.IDs = ids
	if len(ids) > 0 && c.allTenants {
		return nil, misuse("ids of dead letters and --all-tenants exclude each other: an id belongs to one tenant")
	}
	narrowed := len(ids) > 0 || l.Stream != "" || l.Type != "" || l.Error != ""
	switch {
	case l.limit < 1:
		return nil, misuse("--limit must be at least 1: %d", l.limit)
	case !l.All && !narrowed:
		return nil, misuse("name the dead letters by their ids, --stream, --type or --error, or say --all")
	case l.All && narrowed:
		return nil, misuse("--all excludes ids, --stream, --type and --error")
	}
	targets, err := c.targets(ctx, s, args[:1])
	if err != nil || len(ids) == 0 {
		return targets, err
	}
	// Their events are not read: commands work on dead letters whose events cannot be read, too.
	page := projection.DeadLetterPage{
		DeadLetterFilter: projection.DeadLetterFilter{IDs: ids}, States: letterStates, Limit: len(ids),
	}
	found, err := s.DeadLetters(targets[0]).List(ctx, page)
	for i := 0; err == nil && i < len(ids); i++ {
		if !slices.ContainsFunc(found, func(l projection.DeadLetter) bool { return l.ID == ids[i] }) {
			err = fmt.Errorf("dead letter %d of %s: %w", ids[i], targets[0], projection.ErrDeadLetterNotFound)
		}
	}
	return targets, err
}

// mostIDs is how many ids one command of the database has at most: each partition gets all of them.
const mostIDs = 10_000

// pin returns the ids of the parked events that a command is about now, at most as many as its limit, the oldest first.
// No bound of ids or positions would select the same later: an id is drawn before the event is parked, and an event may
// be parked again.
func (l *letterCommand) pin(ctx context.Context, letters projection.DeadLetters) (ids []int64, err error) {
	const most = 1000
	page := projection.DeadLetterPage{DeadLetterFilter: l.DeadLetterFilter}
	for {
		page.Limit = min(l.limit-len(ids), most)
		found, err := letters.List(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, letter := range found {
			ids, page.After = append(ids, letter.ID), letter.Position
		}
		if len(found) < most || len(ids) == l.limit {
			return ids, nil
		}
	}
}

type resultJSON struct {
	Tenant     string `json:"tenant"`
	Projection string `json:"projection"`
	// Done is how many dead letters were resolved, discarded or purged, Failed how many replays failed. Refused are the
	// replays that were refused because later events of their streams are handled.
	Done    int64               `json:"done"`
	Failed  int64               `json:"failed"`
	Refused *projection.Refused `json:"refused,omitempty"`
}

type resultsJSON struct {
	Results []resultJSON `json:"results"`
}

// run runs a command on the dead letters of projections, one after another.
func (c letterCommands) run(ids []millrace.ProjectionID, past string,
	do func(id millrace.ProjectionID) (projection.CommandResult, error)) error {
	all := resultsJSON{Results: []resultJSON{}}
	var ended atomic.Int64
	stop := c.progress().followCount(&ended, len(ids))
	var failedReplays, refusedReplays int64
	var failures []error
	for _, id := range ids {
		result, err := do(id)
		ended.Add(1)
		if errors.Is(err, projection.ErrCommandPending) {
			err = fmt.Errorf("%w: it continues when a node runs the projection", err)
		}
		if err != nil && !errors.Is(err, projection.ErrOutOfOrder) {
			failures = append(failures, fmt.Errorf("%s: %w", report.Name(id), err))
			continue
		}
		failedReplays += result.Failed
		if result.Refused != nil {
			refusedReplays += result.Refused.Events
		}
		all.Results = append(all.Results, resultJSON{id.Tenant, id.Name, result.Done, result.Failed, result.Refused})
	}
	stop()
	err := c.print(all, func() error {
		for _, r := range all.Results {
			text := fmt.Sprintf("%s: %s %s", report.Name(full(r.Tenant, r.Projection)), past, plural(r.Done, "event"))
			if r.Failed > 0 {
				text += fmt.Sprintf("; %s failed again", plural(r.Failed, "event"))
			}
			if r.Refused != nil {
				text += fmt.Sprintf("; %s refused, since later events of the stream are handled: %s",
					plural(r.Refused.Events, "event"), streamsOf(r.Refused))
			}
			if err := c.say("%s", text); err != nil {
				return err
			}
		}
		return nil
	})
	err = cmp.Or(err, joined(failures))
	switch {
	case err != nil:
		return err
	case refusedReplays > 0:
		return fmt.Errorf("%s refused: rebuild the projection, or say --out-of-order if its handler does not mind the order", plural(refusedReplays, "event"))
	case failedReplays > 0:
		return fmt.Errorf("%s failed again: see dead-letters list", plural(failedReplays, "event"))
	}
	return nil
}

// streamsOf returns the streams of refused replays in words.
func streamsOf(r *projection.Refused) string {
	text := strings.Join(r.Streams, ", ")
	if int64(len(r.Streams)) < r.Events && len(r.Streams) > 1 {
		text += ", …"
	}
	return text
}

func (c letterCommands) replayCommand() *cobra.Command {
	var l letterCommand
	cmd := &cobra.Command{
		Use:   "replay PROJECTION [ID...]",
		Short: "Apply parked events again",
		Long: `Applies parked events again, the oldest first, on the node that runs the projection, and waits for the end. An event that
fails stays parked. A parked stream is replayed as a whole and in order.

An event is refused and stays parked if the projection has handled later events of its stream: it would overwrite what they have
written. Rebuild the projection then. If the handler does not mind the order, --out-of-order replays it all the same.

Exits with 1 if an event failed again or was refused.`,
		Example: `  millrace dead-letters replay totals 42 43
  millrace dead-letters replay totals --error "connection refused"
  millrace dead-letters replay totals --all --timeout 5m
  millrace dead-letters replay counts 42 --out-of-order`,
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			ids, err := l.resolve(ctx, c.cli, s, args)
			if err != nil {
				return err
			}
			return c.run(ids, "replayed", func(id millrace.ProjectionID) (projection.CommandResult, error) {
				return s.DeadLetters(id).Replay(ctx, l.DeadLetterFilter, l.limit)
			})
		}),
	}
	l.add(cmd)
	cmd.Flags().BoolVar(&l.OutOfOrder, "out-of-order", false,
		"also events whose streams have later events that are handled")
	return cmd
}

func (c letterCommands) discardCommand() *cobra.Command {
	var l letterCommand
	cmd := &cobra.Command{
		Use:   "discard PROJECTION [ID...]",
		Short: "Discard parked events: they will not be applied",
		Long: `Discards parked events: they will never be applied. Later events of their streams stay parked. So do events that are parked while
the command asks.`,
		Example: `  millrace dead-letters discard totals 42
  millrace dead-letters discard totals --type OrderTested --yes`,
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			ids, err := l.resolve(ctx, c.cli, s, args)
			if err != nil {
				return err
			}
			pinned, n := make(map[millrace.ProjectionID][]int64, len(ids)), 0
			for _, id := range ids {
				pinned[id], err = l.pin(ctx, s.DeadLetters(id))
				if err != nil {
					return err
				}
				n += len(pinned[id])
			}
			err = c.confirm(l.sure, "discard %s of %s%s", plural(n, "parked event"), args[0], l.describe())
			if err != nil {
				return err
			}
			filter := l.DeadLetterFilter
			filter.All = false
			return c.run(ids, "discarded", func(id millrace.ProjectionID) (projection.CommandResult, error) {
				var all projection.CommandResult
				for some := range slices.Chunk(pinned[id], mostIDs) {
					filter.IDs = some
					result, err := s.DeadLetters(id).Discard(ctx, filter, len(some))
					if err != nil {
						return all, err
					}
					all.Done += result.Done
				}
				return all, nil
			})
		}),
	}
	l.add(cmd)
	l.sure.add(cmd)
	return cmd
}

func (c letterCommands) purgeCommand() *cobra.Command {
	var l letterCommand
	var olderThan time.Duration
	cmd := &cobra.Command{
		Use:     "purge PROJECTION [ID...]",
		Short:   "Delete the rows of resolved and discarded dead letters",
		Example: "  millrace dead-letters purge totals --all --older-than 720h",
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			if olderThan < 0 {
				return misuse("--older-than must not be negative: %v", olderThan)
			}
			ids, err := l.resolve(ctx, c.cli, s, args)
			if err != nil {
				return err
			}
			err = c.confirm(l.sure, "delete the rows of dead letters of %s%s that ended more than %v ago", args[0],
				l.describe(), olderThan)
			if err != nil {
				return err
			}
			return c.run(ids, "purged", func(id millrace.ProjectionID) (projection.CommandResult, error) {
				n, err := s.DeadLetters(id).Purge(ctx, l.DeadLetterFilter, olderThan, l.limit)
				return projection.CommandResult{Done: n}, err
			})
		}),
	}
	l.add(cmd)
	l.sure.add(cmd)
	cmd.Flags().DurationVar(&olderThan, "older-than", 7*24*time.Hour, "only those that ended at least so long ago")
	return cmd
}
