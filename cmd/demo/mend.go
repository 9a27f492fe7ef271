package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/projection"
)

// mend mends the fault, and has what is parked applied after all. It comes when everything has been handled, so that all
// chosen events have failed.
func (c *course) mend(ctx context.Context) error {
	var parked letterSummary
	each := make([]int, len(readModels))
	for i, m := range readModels {
		found, err := lettersOf(ctx, c.store, m)
		if err != nil {
			return err
		}
		each[i] = len(found.parked)
		parked.Parked += int64(each[i])
		parked.Behind += found.behind()
	}
	c.fault.mended.Store(true)
	c.phase.Store(replaying)
	c.news.Store(fmt.Sprintf("%d events parked: %d failed, %d wait behind; mended, all are replayed now",
		parked.Parked, parked.Parked-parked.Behind, parked.Behind))
	select {
	case c.look <- struct{}{}: // a replay may be over before the next look
	case <-ctx.Done():
		return ctx.Err()
	}
	var replayed, failed atomic.Int64
	group, within := errgroup.WithContext(ctx)
	for i, m := range readModels {
		if each[i] == 0 {
			continue
		}
		group.Go(func() error {
			done, err := c.store.DeadLetters(m.id()).Replay(within, projection.DeadLetterFilter{All: true}, each[i])
			replayed.Add(done.Done)
			failed.Add(done.Failed)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.news.Store(fmt.Sprintf("%d of %d parked events were replayed, %d failed again", replayed.Load(), parked.Parked, failed.Load()))
	return nil
}
