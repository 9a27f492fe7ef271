package runbook_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tests/kit"
)

// soon are settings with which nodes notice changes quickly.
func soon(name string) millrace.Config {
	tuned := tuning.Settings{
		Heartbeat: 200 * time.Millisecond, Reconcile: 200 * time.Millisecond, Advance: 50 * time.Millisecond,
	}
	return millrace.Config{Store: tuned, NodeName: name, FailureDetection: 200 * time.Millisecond}
}

// handleFunc handles an event in a transaction.
type handleFunc func(ctx context.Context, tx pgx.Tx, e event.Envelope) error

// counting returns a handler that calls before, if it is not nil, and then counts the events of each stream.
func counting(before handleFunc) millrace.Handler {
	return pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		if before != nil {
			if err := before(ctx, tx, e); err != nil {
				return err
			}
		}
		return count(ctx, tx, e)
	})
}

func count(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
	_, err := tx.Exec(ctx,
		"insert into public.totals values ($1, 1) on conflict (stream) do update set n = totals.n + 1", e.Stream)
	return err
}

// failingTwice is a retry policy with short delays.
var failingTwice = projection.RetryPolicy{MaxAttempts: 2, Base: 10 * time.Millisecond}

// totals is a projection with a handler that calls before.
func totals(before handleFunc) millrace.Projection {
	return millrace.Projection{Name: "totals", Handler: counting(before), Retry: failingTwice,
		OnFailure: projection.ActionPark, MissingObjectTimeout: time.Hour,
		Reset: pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "delete from public.totals")
			return err
		})}
}

// node runs projections in this process until stop is called, or to the end of the test.
func (s *scenario) node(config millrace.Config, projections ...millrace.Projection) (stop func()) {
	s.Helper()
	return s.running(s.runtime(config, projections...))
}

// runtime returns a runtime of projections, which does not run yet.
func (s *scenario) runtime(config millrace.Config, projections ...millrace.Projection) *millrace.Runtime {
	s.Helper()
	if store.DriverOf(config.Store) == nil {
		config = kit.On(config, s.store)
	}
	runtime, err := millrace.New(config)
	s.must(err)
	for _, p := range projections {
		s.must(runtime.Register(p))
	}
	return runtime
}

// running runs a runtime until stop is called, or to the end of the test.
func (s *scenario) running(runtime *millrace.Runtime) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	ended := make(chan error, 1)
	go func() { ended <- runtime.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("the node ended with: %v", err)
		}
	})
	s.Cleanup(stop)
	return stop
}

const (
	// nodePlace makes the test binary a node of the store that it names. nodeName names the node.
	nodePlace, nodeName = "MILLRACE_RUNBOOK_NODE", "MILLRACE_RUNBOOK_NAME"
	// repairedFile names a file: while it exists, all events are handled.
	repairedFile = "MILLRACE_RUNBOOK_REPAIRED"
)

// process starts a node in a process of its own, which is killed at the end of the test.
func (s *scenario) process(name, place, repaired string) *exec.Cmd {
	s.Helper()
	cmd := s.started(name, place, repaired)
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// started starts a node in a process of its own. The caller ends it.
func (s *scenario) started(name, place, repaired string) *exec.Cmd {
	s.Helper()
	program, err := os.Executable()
	s.must(err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), nodePlace+"="+place, nodeName+"="+name, repairedFile+"="+repaired)
	cmd.Stderr = os.Stderr
	s.must(cmd.Start())
	return cmd
}

// runNode runs the projections totals and mails until SIGTERM. While the file of repairedFile does not exist, an event
// of the type Deadly ends the process in totals, and Slow stops it there until its context ends.
func runNode() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	before := func(ctx context.Context, e event.Envelope) error {
		id, _ := millrace.ProjectionFrom(ctx)
		_, err := os.Stat(os.Getenv(repairedFile))
		switch {
		case err == nil || id.Name != "totals":
		case e.Type == "Deadly":
			os.Exit(2)
		case e.Type == "Slow":
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	config := soon(os.Getenv(nodeName))
	config.LeaseDuration, config.GracePeriod = 2*time.Second, patient
	var handler millrace.Handler
	if place := os.Getenv(nodePlace); strings.Contains(place, "://") {
		store, err := pgstore.Open(ctx, place, pgstore.Options{})
		if err != nil {
			return err
		}
		defer store.Close()
		config = kit.On(config, store)
		handler = pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			if err := before(ctx, e); err != nil {
				return err
			}
			return count(ctx, tx, e)
		})
	} else {
		store, err := sqlitestore.Open(ctx, place, sqlitestore.Options{})
		if err != nil {
			return err
		}
		defer store.Close()
		config = kit.On(config, store)
		handler = sqlitestore.Each(func(ctx context.Context, _ *sql.Tx, e event.Envelope) error {
			return before(ctx, e)
		})
	}
	runtime, err := millrace.New(config)
	if err != nil {
		return err
	}
	for _, name := range []string{"mails", "totals"} {
		if err := runtime.Register(millrace.Projection{Name: name, Handler: handler}); err != nil {
			return fmt.Errorf("register %s: %w", name, err)
		}
	}
	return runtime.Run(ctx)
}
