package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/projection"
)

var deadLetterFaults = []fault{
	{
		name:    "the dependency of poison events stays unavailable",
		expects: "they are parked with the later events of their streams, replays fail, and the other streams continue",
		reach:   reachData, weight: 3, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second, busy: true,
		strike: func(s *strike) error {
			defer s.withhold()()
			s.wait(s.lasts)
			return nil
		},
	},
	{
		name:    "dead letters are replayed by command, again and again",
		expects: "each event is applied once, although replays also run automatically, and each stream stays in order",
		reach:   reachData, weight: 3, least: 500 * time.Millisecond, most: 2 * time.Second, busy: true,
		strike: func(s *strike) error {
			return s.command(func(ctx context.Context, letters projection.DeadLetters) (projection.CommandResult,
				error) {
				filter := []projection.DeadLetterFilter{
					{All: true}, {Type: typePlain}, {Error: "missing"},
					{Stream: fmt.Sprint("stream-", s.rnd.IntN(streams))},
				}
				return letters.Replay(ctx, filter[s.rnd.IntN(len(filter))], 1+s.rnd.IntN(100))
			})
		},
	},
	killedAt(orderDieInReplay, shipments, "killed in a replay, between handler and commit",
		"the event stays parked, and the next owner replays it"),
	{
		name:    "dead letters are discarded",
		expects: "no more are discarded than requested, and the later events of their streams stay in order",
		reach:   reachData, weight: 1, least: 500 * time.Millisecond, most: 2 * time.Second, busy: true,
		strike: func(s *strike) error {
			if s.alone {
				defer s.withhold()() // some are parked soon then
				if err := until(s.ctx, time.Minute, "every tenant has a parked event", s.allParked); err != nil {
					return err
				}
				s.lasts *= 2 // each tenant gets several commands
			}
			return s.command(func(ctx context.Context, letters projection.DeadLetters) (projection.CommandResult,
				error) {
				return letters.Discard(ctx, projection.DeadLetterFilter{All: true}, 1+s.rnd.IntN(2))
			})
		},
		check: func(s *strike) error {
			discarded, err := value[int64](s.cluster,
				"select count(*) from millrace.dead_letters where state = 'discarded'")
			if err == nil && discarded == 0 {
				err = errors.New("nothing was discarded")
			}
			return err
		},
	},
}

// allParked reports whether every tenant has a dead letter that can be discarded.
func (s *strike) allParked() bool {
	with, err := value[int](s.cluster,
		`select count(distinct p.tenant) from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
		where p.name = $1 and d.state = 'parked'`, shipments)
	return err == nil && with == len(tenants)
}

// command gives commands for dead letters of shipments, to random tenants. In random schedules a command may fail, stay
// pending, or be lost with its server.
func (s *strike) command(give func(ctx context.Context, letters projection.DeadLetters) (projection.CommandResult,
	error)) error {
	limit := s.lasts
	if s.alone {
		limit = 20 * time.Second
	}
	return s.repeat(50, 200, func() error {
		ctx, cancel := context.WithTimeout(s.ctx, limit)
		defer cancel()
		_, err := give(ctx,
			s.store.DeadLetters(projection.ID{Tenant: tenants[s.rnd.IntN(len(tenants))], Name: shipments}))
		if isOutage(err) || errors.Is(err, projection.ErrCommandPending) ||
			errors.Is(err, projection.ErrCommandNotFound) || errors.Is(err, context.DeadlineExceeded) {
			return s.ifAlone(err)
		}
		return err
	})
}
