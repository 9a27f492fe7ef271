package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// streamsPerWriter is how many streams each writer appends to. Each round has streams of its own.
const streamsPerWriter = 100

// appends measures how fast concurrent writers append: without notifications, with those of millrace after the commit, and with
// one inside each transaction.
func appends(ctx context.Context, e *env, o options, out io.Writer) error {
	silent, err := pgstore.OpenPool(ctx, e.Pool, pgstore.Options{Schema: storeSchema, NoNotify: true})
	if err != nil {
		return err
	}
	defer silent.Close()
	appendTo := func(store *pgstore.Store) appendFunc {
		return func(ctx context.Context, stream string) error {
			_, err := store.Append(ctx, stream, event.Any, probe)
			return err
		}
	}
	total := 0
	round := func(name string, appendOne appendFunc) func(ctx context.Context, round int) (float64, error) {
		return func(ctx context.Context, round int) (float64, error) {
			n, perSecond, err := write(ctx, o, fmt.Sprint(name, round), appendOne)
			if err != nil {
				return 0, err
			}
			total += n
			return perSecond, e.mustHold(ctx, total)
		}
	}
	contenders := []contender[float64]{
		{"append, no notification", round("silent", appendTo(silent))},
		{"append, millrace", round("millrace", appendTo(e.Store))},
		{"append, notify in the transaction", round("inside", func(ctx context.Context, stream string) error {
			_, err := appendBaseline(ctx, silent, stream)
			return err
		})},
	}
	results, err := runRounds(ctx, o.rounds, contenders)
	if err != nil {
		return err
	}
	return showSpeeds(out, "appends/s", contenders, results)
}

type appendFunc func(ctx context.Context, stream string) error

// write lets all writers append for a while, each at least once, and returns the number of appends.
func write(ctx context.Context, o options, prefix string, appendOne appendFunc) (n int, perSecond float64, err error) {
	var count atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for w := range o.writers {
		group.Go(func() error {
			for i := 0; i == 0 || time.Since(begin) < o.appendTime; i++ {
				if err := appendOne(ctx, fmt.Sprintf("%s-%d-%d", prefix, w, i%streamsPerWriter)); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err = group.Wait()
	took := time.Since(begin)
	return int(count.Load()), float64(count.Load()) / took.Seconds(), err
}
