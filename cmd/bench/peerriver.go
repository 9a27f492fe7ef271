package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/millrace-go/millrace/internal/program"
)

// riverPeer is River. An event is a job, which the handler completes in its transaction.
type riverPeer struct {
	pool     *pgxpool.Pool
	name     string
	cooldown time.Duration
	inserter *river.Client[pgx.Tx]
}

// riverArgs are the arguments of a job.
type riverArgs struct {
	N int `json:"n"`
}

func (riverArgs) Kind() string { return "numbered" }

// riverWorker works the jobs.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]

	peer    *riverPeer
	applied func(n int)
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	err := pgx.BeginFunc(ctx, w.peer.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, appliedSQL, w.peer.name, job.Args.N); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err != nil {
		return err
	}
	w.applied(job.Args.N)
	return nil
}

// prepareRiver creates River's tables.
func prepareRiver(ctx context.Context, e *env) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(e.Pool), &rivermigrate.Config{Logger: silent()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newRiver returns River with a fetch cooldown, 0 for its default.
func newRiver(cooldown time.Duration) peerFunc {
	return func(ctx context.Context, e *env, name string) (peer, error) {
		pool, err := e.pool(ctx, peerConnections+4, nil)
		if err != nil {
			return nil, err
		}
		if _, err := e.Pool.Exec(ctx, "truncate river_job"); err != nil {
			return nil, err
		}
		// The inserting client limits its notifications by the cooldown, too.
		inserter, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: silent(), FetchCooldown: cooldown})
		return &riverPeer{pool, name, cooldown, inserter}, err
	}
}

func (p *riverPeer) insert(ctx context.Context, from, n int) error {
	if n == 1 {
		_, err := p.inserter.Insert(ctx, riverArgs{from}, nil)
		return err
	}
	list := make([]river.InsertManyParams, n)
	for i := range list {
		list[i].Args = riverArgs{from + i}
	}
	_, err := p.inserter.InsertManyFast(ctx, list)
	return err
}

func (p *riverPeer) run(ctx context.Context, applied func(n int)) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{peer: p, applied: applied})
	client, err := river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Logger: silent(), Workers: workers, FetchCooldown: p.cooldown,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: peerConnections}},
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	err = program.Cleanup(ctx, client.Stop)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
