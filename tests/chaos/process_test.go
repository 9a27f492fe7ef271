package chaos_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
)

// nodeVariable holds a nodeSpec in the environment of a process that is to be a node.
const nodeVariable = "MILLRACE_CHAOS_NODE"

// nodeSpec is what a node's process needs to know.
type nodeSpec struct {
	Name       string
	DSN        string
	SessionDSN string
	Times      times
}

// times are those that differ between tests.
type times struct {
	Poll     time.Duration // how far apart the polls are; 0: poll
	Lease    time.Duration // 0: leaseTime
	Deadline time.Duration // of the batch handlers; 0: batchDeadline
}

func (t times) withDefaults() times {
	return times{cmp.Or(t.Poll, poll), cmp.Or(t.Lease, leaseTime), cmp.Or(t.Deadline, batchDeadline)}
}

// The times that the nodes live by. Bounds of expectations are derived from them.
const (
	leaseTime     = 2 * time.Second
	heartbeat     = 500 * time.Millisecond
	deathNotice   = time.Second
	poll          = time.Second
	batchDeadline = 5 * time.Second
)

// runNode is a node's process: it runs the projections until it is told to stop, and tells of itself on its standard
// output. Its log goes to its standard error.
func runNode(text string) (code int) {
	encoder := zap.NewDevelopmentEncoderConfig()
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoder), zapcore.Lock(os.Stderr), zap.InfoLevel))
	var spec nodeSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		log.Error("node does not know what to do", zap.Error(err))
		return 2
	}
	log = log.Named(fmt.Sprintf("%s/%d", spec.Name, os.Getpid()))
	if err := serve(spec, log); err != nil {
		log.Error("node ended", zap.Error(err))
		return 1
	}
	return 0
}

func serve(spec nodeSpec, log *zap.Logger) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o := newOrders(os.Stdout, stop)
	config, err := pgxpool.ParseConfig(spec.DSN)
	if err != nil {
		return fmt.Errorf("read the DSN: %w", err)
	}
	watchCommits(config, o)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("make the pool: %w", err)
	}
	defer pool.Close()
	o.renew = pool.Reset
	go o.read(os.Stdin)
	opening, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	store, err := pgstore.OpenPool(opening, pool, pgstore.Options{Logger: log, SessionDSN: spec.SessionDSN})
	if err != nil && ctx.Err() != nil {
		return nil // it was told to stop before it had begun
	}
	if err != nil {
		return err
	}
	defer store.Close()
	rt, err := millrace.New(millrace.Config{
		Store: store, Logger: log,
		LeaseDuration: spec.Times.Lease, HeartbeatInterval: heartbeat, FailureDetection: deathNotice, ReconcileInterval: 500 * time.Millisecond,
		PollInterval: spec.Times.Poll, AdvanceInterval: 500 * time.Millisecond,
		QueryTimeout: 3 * time.Second, GracePeriod: 3 * time.Second,
	})
	if err != nil {
		return err
	}
	for _, p := range projections(o, fmt.Sprintf("%s/%d", spec.Name, os.Getpid()), spec.Times.Deadline) {
		if err := rt.Register(p); err != nil {
			return err
		}
	}
	go o.introduce(ctx, rt)
	return rt.Run(ctx)
}

// introduce tells the node's id as soon as it has one.
func (o *orders) introduce(ctx context.Context, rt *millrace.Runtime) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if status, err := rt.Status(ctx); err == nil && status.Node != "" {
			o.tell("node %s", status.Node)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
