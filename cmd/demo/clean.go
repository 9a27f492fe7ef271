package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/program"
)

func cleanCommand(hurry context.Context) *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove everything that nodes and loads created",
		Long: `Removes the schemas that the demo's nodes and loads created, with all that is in them, and nothing else. It refuses to while
a node runs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if url, err = sharedURL(cmd, url); err != nil {
				return err
			}
			return runClean(cmd.Context(), hurry, url, cmd.OutOrStdout())
		},
	}
	databaseFlag(cmd, &url)
	return cmd
}

func runClean(ctx, hurry context.Context, url string, out io.Writer) (err error) {
	defer func() { err = interruption(ctx, err) }()
	d := &database{keep: true}
	defer func() { err = errors.Join(err, d.close(hurry)) }()
	if err := d.connect(ctx, url, 0, zap.NewNop()); err != nil {
		return err
	}
	ours, err := d.found(ctx)
	if err != nil {
		return err
	}
	if len(ours) == 0 {
		_, err := fmt.Fprintln(out, "there is nothing to remove")
		return err
	}
	if err := d.unused(ctx); err != nil {
		return err
	}
	if err := program.Remove(ctx, d.pool, ours); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "removed the schemas %s\n", strings.Join(ours, ", "))
	return err
}

// unused fails where a node is alive: it would be left without its tables.
func (d *database) unused(ctx context.Context) error {
	runtime, err := millrace.New(millrace.Config{Store: d.store})
	if err != nil {
		return err
	}
	status, err := runtime.Status(ctx)
	if err != nil {
		return nil // what keeps nodes from being seen, such as half of the tables, keeps them from running
	}
	var alive []string
	for _, n := range status.Nodes {
		if n.Alive {
			alive = append(alive, short(n.ID))
		}
	}
	if len(alive) > 0 {
		return fmt.Errorf("node %s runs: interrupt it first, or, if it was killed, wait for its lease to run out", strings.Join(alive, " and node "))
	}
	return nil
}
