package chaos_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
)

// nodeVariable is the environment variable that makes the test binary a node. It holds a nodeSpec.
const nodeVariable = "MILLRACE_CHAOS_NODE"

// nodeSpec configures a node's process.
type nodeSpec struct {
	Name       string
	DSN        string
	SessionDSN string
	Times      times
}

// times are the settings that differ between tests.
type times struct {
	Poll    time.Duration // 0: 1 s
	Lease   time.Duration // 0: leaseTime
	Timeout time.Duration // of the batch handlers; 0: 5 s
}

func (t times) withDefaults() times {
	return times{cmp.Or(t.Poll, time.Second), cmp.Or(t.Lease, leaseTime), cmp.Or(t.Timeout, 5*time.Second)}
}

// The settings of the nodes. Limits of the tests are derived from them.
const (
	leaseTime        = 2 * time.Second
	heartbeat        = 500 * time.Millisecond
	failureDetection = time.Second
)

// runNode is the main function of a node's process. It runs the projections until it is ordered to stop, takes orders
// from its standard input, reports to its standard output, and logs to its standard error.
func runNode(text string) (code int) {
	encoder := zap.NewDevelopmentEncoderConfig()
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoder), zapcore.Lock(os.Stderr), zap.InfoLevel))
	var spec nodeSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		log.Error("node has no configuration", zap.Error(err))
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
	o.closeConnections = pool.Reset
	go o.read(os.Stdin)
	opening, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	store, err := pgstore.OpenPool(opening, pool, pgstore.Options{Logger: slog.New(zapslog.NewHandler(log.Core())),
		SessionDSN: spec.SessionDSN})
	if err != nil && ctx.Err() != nil {
		return nil // it was ordered to stop before it had begun
	}
	if err != nil {
		return err
	}
	defer store.Close()
	rt, err := millrace.New(millrace.Config{
		Store: tuning.Settings{
			Store: store, Heartbeat: heartbeat, Reconcile: 500 * time.Millisecond, Advance: 500 * time.Millisecond,
			Query: 3 * time.Second,
		},
		Logger: log, LeaseDuration: spec.Times.Lease, FailureDetection: failureDetection, PollInterval: spec.Times.Poll,
		GracePeriod: 3 * time.Second,
	})
	if err != nil {
		return err
	}
	for _, p := range projections(o, fmt.Sprintf("%s/%d", spec.Name, os.Getpid()), spec.Times.Timeout) {
		if err := rt.Register(p); err != nil {
			return err
		}
	}
	return rt.Run(ctx)
}
