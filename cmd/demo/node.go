package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
)

const (
	// lookEvery is how far apart a node's looks at what it runs are: close enough that none seems late.
	lookEvery = 100 * time.Millisecond
	// lookLimit is how long a look may take before the database counts as away.
	lookLimit = 3 * time.Second
	// clock is how it is told when something was: nodes of one machine can be compared by it.
	clock = "15:04:05.000"
)

type nodeOptions struct {
	databaseURL          string
	log                  string
	leaseTime, heartbeat time.Duration
}

func nodeCommand(hurry context.Context) *cobra.Command {
	var o nodeOptions
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run one node of the demo's projections, beside others on the same database",
		Long: `Runs the demo's four projections, as one of any number of nodes on the same database, and prints a line when something
changes: which projections it claims, takes over and gives up, and how many events it applies. It creates the tables
where they are missing, and leaves them there: see demo load, status, check and clean.

The first interrupt stops it in order, and it hands its projections over; the second ends it at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.databaseURL, err = sharedURL(cmd, o.databaseURL); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return runNode(cmd.Context(), hurry, o, cmd.OutOrStdout())
		},
	}
	databaseFlag(cmd, &o.databaseURL)
	f := cmd.Flags()
	f.DurationVar(&o.leaseTime, "lease-time", 5*time.Second, "how long its projections stay its own without a heartbeat")
	f.DurationVar(&o.heartbeat, "heartbeat", time.Second, "how far apart its heartbeats are; a third of -lease-time at the most")
	f.StringVar(&o.log, "log", "", "write what the library logs to this file")
	f.SortFlags = false
	return cmd
}

func (o nodeOptions) validate() error {
	switch {
	case o.heartbeat < time.Millisecond:
		return fmt.Errorf("-heartbeat is %v, but must be at least 1ms", o.heartbeat)
	case o.heartbeat > o.leaseTime/3:
		return fmt.Errorf("-heartbeat is %v, but must be a third of -lease-time (%v) at the most", o.heartbeat, o.leaseTime)
	}
	return nil
}

// runNode returns when the node has stopped, or when hurry is done.
func runNode(ctx, hurry context.Context, o nodeOptions, out io.Writer) (err error) {
	log, closeLog, err := openLog(o.log)
	if err != nil {
		return err
	}
	defer closeLog()
	d, err := openShared(ctx, hurry, o.databaseURL, 0, true, log)
	if err != nil {
		return interruption(ctx, err)
	}
	defer func() { err = errors.Join(err, d.close(hurry)) }()
	runtime, err := newRuntime(millrace.Config{Store: d.store, Logger: log, LeaseDuration: o.leaseTime, HeartbeatInterval: o.heartbeat}, new(fault))
	if err != nil {
		return err
	}
	title := fmt.Sprintf("process %d, lease time %v, heartbeat %v, on %s", os.Getpid(), o.leaseTime, o.heartbeat, d.name)
	n := &node{runtime: runtime, journal: newJournal(title, time.Now()), out: out}
	return n.run(ctx, hurry)
}

// node is a runtime, and what is told of it.
type node struct {
	runtime *millrace.Runtime
	journal *journal
	out     io.Writer
}

func (n *node) run(ctx, hurry context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- n.runtime.Run(running) }()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	interrupted := ctx.Done()
	var unread error // why nobody reads what is told
	for {
		select {
		case <-ticker.C:
		case <-interrupted:
			interrupted = nil
			n.tell("stopping")
			continue
		case <-hurry.Done():
			return context.Cause(hurry)
		case err := <-ended:
			if err != nil {
				return interruption(ctx, err)
			}
			if running.Err() == nil {
				return errors.New("the runtime ended by itself")
			}
			n.look(hurry)
			n.tell("stopped in order")
			return errors.Join(unread, wellEnded(ctx))
		}
		if err := n.look(hurry); err != nil && unread == nil {
			unread = fmt.Errorf("tell what changes: %w", err)
			stop()
		}
	}
}

// look tells what has changed since the look before. Only what keeps it from telling is an error.
func (n *node) look(hurry context.Context) error {
	ctx, cancel := context.WithTimeout(hurry, lookLimit)
	defer cancel()
	status, err := n.runtime.Status(ctx)
	for _, line := range n.journal.look(time.Now(), status, err) {
		if err := n.tell(line); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) tell(line string) error {
	_, err := fmt.Fprintf(n.out, "%s %s\n", time.Now().Format(clock), line)
	return err
}

// wellEnded tells how a command ends that goes on until it is interrupted: well, unless nobody reads it any more.
func wellEnded(ctx context.Context) error {
	var by interruptedError
	if errors.As(context.Cause(ctx), &by) && by.signal != syscall.SIGPIPE {
		return nil
	}
	return context.Cause(ctx)
}
