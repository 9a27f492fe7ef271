package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
)

const (
	// statusEvery is how often a node reads its own status.
	statusEvery = 100 * time.Millisecond
	// statusLimit is how long that may take.
	statusLimit = 3 * time.Second
	// clock is the format of times. Milliseconds let readers compare the nodes of one machine.
	clock = "15:04:05.000"
)

type nodeOptions struct {
	store     storeFlags
	log       string
	leaseTime time.Duration
}

func nodeCommand() *cobra.Command {
	var o nodeOptions
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run one node with the demo's projections, beside other nodes on the same store",
		Long: `Runs the demo's four projections as one of any number of nodes on the same store. It prints which projections it
claims, takes over and releases, and how many events it applies. It creates missing tables and does not remove them: see
demo load, status, check and clean.

The nodes of a PostgreSQL database share the projections. Of the nodes of a file, one runs all projections, and the others
stand by until it ends.

The first interrupt stops the node gracefully and releases its projections; the second stops it at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := o.store.place(cmd)
			if err != nil {
				return err
			}
			if o.store.file != "" && cmd.Flags().Changed("lease-time") {
				return errors.New("-lease-time needs PostgreSQL: a file has no leases that expire, since its owner holds a lock")
			}
			return runNode(cmd.Context(), at, o, cmd.OutOrStdout())
		},
	}
	o.store.add(cmd)
	f := cmd.Flags()
	f.DurationVar(&o.leaseTime, "lease-time", 5*time.Second,
		"how long the node keeps its projections without a heartbeat")
	f.StringVar(&o.log, "log", "", "write the library's log to this file")
	f.SortFlags = false
	return cmd
}

// runNode returns when the node has stopped.
func runNode(ctx context.Context, at place, o nodeOptions, out io.Writer) error {
	log, closeLog, err := openLog(o.log)
	if err != nil {
		return err
	}
	defer closeLog()
	d, err := at.share(ctx, 0, log)
	if err != nil {
		return err
	}
	defer d.Close()
	runtime, err := newRuntime(d, millrace.Config{Logger: log, LeaseDuration: o.leaseTime}, new(fault))
	if err != nil {
		return err
	}
	on, err := d.describe(ctx)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("process %d, on %s", os.Getpid(), on)
	if o.store.file == "" {
		title = fmt.Sprintf("process %d, lease time %v, on %s", os.Getpid(), o.leaseTime, on)
	}
	n := &node{runtime: runtime, log: newEventLog(title, time.Now()), out: out}
	n.log.standsBy = o.store.file != ""
	return n.run(ctx)
}

// node is a runtime that prints what changes.
type node struct {
	runtime *millrace.Runtime
	log     *eventLog
	out     io.Writer
}

// run returns nil after an interruption. It fails if its output cannot be written.
func (n *node) run(ctx context.Context) (err error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- n.runtime.Run(running) }()
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	interrupted := ctx.Done()
	for err == nil {
		select {
		case <-ticker.C:
			err = n.observe(ctx)
		case <-interrupted:
			interrupted = nil
			err = n.print("stopping")
		case err := <-ended:
			if err == nil && ctx.Err() == nil {
				err = errors.New("the runtime ended unexpectedly")
			}
			if err != nil {
				return err
			}
			if interrupted != nil { // the runtime has ended before the interruption was seen here
				err = n.print("stopping")
			}
			return errors.Join(err, n.observe(ctx), n.print("stopped gracefully"))
		}
	}
	stop()
	return errors.Join(err, <-ended)
}

// observe prints what has changed. Only a failure to print is an error.
func (n *node) observe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusLimit)
	defer cancel()
	status, err := n.runtime.Status(ctx, ofDemo)
	for _, line := range n.log.lines(time.Now(), status, err) {
		if err := n.print(line); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) print(line string) error {
	if _, err := fmt.Fprintf(n.out, "%s %s\n", time.Now().Format(clock), line); err != nil {
		return fmt.Errorf("print the event log: %w", err)
	}
	return nil
}
