package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
)

var takeoverScenario = scenario{
	name: "takeover",
	about: `Two processes share all projections evenly, and one of them ends: by SIGTERM, so that it releases its leases, or by SIGKILL.
		Measured is the time from the signal until the other process has claimed the first and the last of its leases. All settings have
		their defaults: FailureDetection is 1 s. The verification reads the leases, appends an event to one tenant, and waits until all
		projections of the tenant have applied it.`,
	cases: func(o sizeOptions) (cases []benchCase) {
		for _, leases := range o.takeoverLeases {
			c := benchCase{
				name: thousands(int64(leases)) + " leases",
				metrics: []metric{
					{"first lease", "s", lower, false}, {"all leases", "s", lower, true},
					{"from first to last", "s", lower, false},
				},
				goals: []goal{
					{contender: "clean stop", metric: "all leases", atMost: 0.2},
					{contender: "kill -9", metric: "all leases", atMost: 1},
				},
				rounds: min(o.rounds, 5),
				prepare: func(ctx context.Context, e *env) ([]contender, error) {
					// Half of the projections are the other process's.
					f, err := newFleet(ctx, e, 2*leases, min(leases/3, o.perTenant))
					if err != nil {
						return nil, err
					}
					return []contender{{"clean stop", f.takeoverAfter(syscall.SIGTERM)},
						{"kill -9", f.takeoverAfter(syscall.SIGKILL)}}, nil
				},
			}
			if leases > 100 {
				// The promise is about few leases; many are released and claimed one statement after the other.
				c.goals[0].atMost, c.rounds = 1, (c.rounds+1)/2
			}
			if leases > 1000 {
				c.goals = []goal{
					{contender: "clean stop", metric: "from first to last", atMost: 5},
					{contender: "kill -9", metric: "from first to last", atMost: 5},
				}
				c.rounds = min(c.rounds, 2)
			}
			cases = append(cases, c)
		}
		return cases
	},
}

// leaseCount counts the leases of a runtime, and remembers when it had a certain number.
type leaseCount struct {
	mu          sync.Mutex
	n, want     int
	first, last time.Time // since want was set
	reached     chan struct{}
}

func (c *leaseCount) change(l observe.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Change != observe.LeaseClaimed {
		c.n--
		return
	}
	c.n++
	if c.want == 0 {
		return
	}
	if c.first.IsZero() {
		c.first = time.Now()
	}
	if c.n == c.want {
		c.last = time.Now()
		close(c.reached)
		c.want = 0
	}
}

// expect returns a channel that closes when the runtime has this number of leases, which is more than now.
func (c *leaseCount) expect(want int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.want, c.first, c.last, c.reached = want, time.Time{}, time.Time{}, make(chan struct{})
	return c.reached
}

func (c *leaseCount) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// takeoverAfter runs a survivor in this process and a victim in another, and sends the victim a signal.
func (f *fleet) takeoverAfter(sig syscall.Signal) func(ctx context.Context, _ int) (figures, verify, error) {
	return func(ctx context.Context, _ int) (measured figures, _ verify, err error) {
		var leases leaseCount
		f.observer = observe.Observer{LeaseChanged: leases.change}
		defer func() { f.observer = observe.Observer{} }()
		err = f.run(ctx, func(ctx context.Context, rt *millrace.Runtime) error {
			victim, err := f.startNode(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = victim.Process.Kill() }() // it may have ended
			if err := f.shared(ctx, &leases); err != nil {
				return errors.Join(err, victim.Process.Kill(), victim.Wait())
			}
			claimed := leases.expect(f.projections)
			begin := time.Now()
			if err := victim.Process.Signal(sig); err != nil {
				return err
			}
			select {
			case <-claimed:
			case <-ctx.Done():
				return fmt.Errorf("%d of %d leases were claimed: %w", leases.now(), f.projections, context.Cause(ctx))
			}
			if err := victim.Wait(); err != nil && sig != syscall.SIGKILL {
				return fmt.Errorf("stop the other process: %w", err)
			}
			measured = figures{
				leases.first.Sub(begin).Seconds(), leases.last.Sub(begin).Seconds(),
				leases.last.Sub(leases.first).Seconds(),
			}
			return f.follows(ctx, rt)
		})
		return measured, alreadyVerified, err
	}
}

// shared waits until both processes have half of the leases, and no lease is free.
func (f *fleet) shared(ctx context.Context, leases *leaseCount) error {
	var failed error
	err := until(ctx, "both processes have their share", func() bool {
		if leases.now() != f.projections/2 {
			return false
		}
		var owned int
		failed = f.Pool.QueryRow(ctx, "select count(*) from "+storeSchema+
			".leases where owner is not null").Scan(&owned)
		return failed != nil || owned == f.projections
	})
	return errors.Join(err, failed)
}

// startNode starts a process that runs the same projections.
func (f *fleet) startNode(ctx context.Context) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// It ends with this process, if it is not ended before: its standard input closes.
	cmd := exec.CommandContext(ctx, path, nodeCommand, "-per-tenant", fmt.Sprint(f.perTenant))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+f.dsn)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return cmd, cmd.Start()
}

// nodeFlags are the flags of the command that a process of takeover runs.
func newNodeCommand() *cobra.Command {
	var perTenant int
	cmd := &cobra.Command{
		Use: nodeCommand, Short: "Run a node for the scenario takeover", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() { // the process that started this one has ended
				_, _ = os.Stdin.Read(make([]byte, 1))
				cancel()
			}()
			err := runNode(ctx, os.Getenv("DATABASE_URL"), perTenant)
			if cmd.Context().Err() != nil {
				return nil // it was told to stop
			}
			return err
		},
	}
	cmd.Flags().IntVar(&perTenant, "per-tenant", 10, "projections of each tenant")
	return cmd
}

// runNode runs the projections of a fleet until ctx ends.
func runNode(ctx context.Context, dsn string, perTenant int) error {
	e := &env{dsn: dsn}
	defer func() { _ = e.close(ctx) }()
	store, err := e.store(ctx, 12, pgstore.Options{}, nil)
	if err != nil {
		return err
	}
	f := &fleet{env: e, store: store, perTenant: perTenant}
	rt, err := f.runtime()
	if err != nil {
		return err
	}
	return rt.Run(ctx)
}
