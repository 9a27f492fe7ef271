package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

var letterFaults = []fault{
	{
		name:    "what poison events need stays away",
		expects: "they are parked with what comes behind them, replays fail, and the other streams go on",
		reach:   reachData, weight: 3, least: time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			defer s.withhold()()
			s.wait(s.lasts)
			return nil
		},
		proves: (*strike).progress,
	},
	{
		name:    "somebody replays what is parked, again and again",
		expects: "each event is applied once, whoever else replays it, and each stream stays in order",
		reach:   reachData, weight: 3, least: 500 * time.Millisecond, most: 2 * time.Second,
		strike: func(s *strike) error {
			return s.command(func(ctx context.Context, letters *pgstore.DeadLetters) (projection.CommandResult, error) {
				filter := []projection.DeadLetterFilter{{All: true}, {Type: typePlain}, {Error: "missing"}, {Stream: fmt.Sprint("stream-", s.rnd.IntN(streams))}}
				return letters.Replay(ctx, filter[s.rnd.IntN(len(filter))], 1+s.rnd.IntN(100))
			})
		},
	},
	killedAt(orderDieInReplay, "killed in a replay, between handler and commit", "the event stays parked, and the next owner replays it"),
	{
		name:    "somebody discards what is parked",
		expects: "as many as were to be are given up, and what is behind them stays in order",
		reach:   reachData, weight: 1, least: 500 * time.Millisecond, most: 2 * time.Second,
		strike: func(s *strike) error {
			if s.alone {
				defer s.withhold()() // so that there is something
			}
			return s.command(func(ctx context.Context, letters *pgstore.DeadLetters) (projection.CommandResult, error) {
				return letters.Discard(ctx, projection.DeadLetterFilter{All: true}, 1+s.rnd.IntN(2))
			})
		},
		proves: func(s *strike) error {
			discarded, err := rows(s.cluster, scanNumber, "select count(*) from millrace.dead_letters where state = 'discarded'")
			if err == nil && discarded[0] == 0 {
				err = errors.New("nothing was discarded")
			}
			return err
		},
	},
}

// command gives commands about the dead letters of shipments, for a while, to one tenant after another.
func (s *strike) command(give func(ctx context.Context, letters *pgstore.DeadLetters) (projection.CommandResult, error)) error {
	limit := s.lasts
	if s.alone {
		limit = 20 * time.Second
	}
	for end := time.Now().Add(s.lasts); time.Now().Before(end) && s.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(s.ctx, limit)
		_, err := give(ctx, s.store.DeadLetters(projection.ID{Tenant: tenants[s.rnd.IntN(len(tenants))], Name: shipments}))
		cancel()
		// Where other things go wrong it may not be given, or not be carried out in time. It stays to be.
		// A command may be lost with its server.
		fine := isOutage(err) || errors.Is(err, projection.ErrCommandPending) || errors.Is(err, projection.ErrCommandNotFound) || errors.Is(err, context.DeadlineExceeded)
		if err != nil && (s.alone || !fine) {
			return err
		}
		s.wait(time.Duration(50+s.rnd.IntN(200)) * time.Millisecond)
	}
	return nil
}
