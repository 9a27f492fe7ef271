package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/program"
)

func cleanCommand() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove everything that the demo created",
		Long:  `Removes the schemas that the demo created, and nothing else. While a node runs, it refuses and removes nothing.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if url, err = sharedURL(cmd, url); err != nil {
				return err
			}
			return runClean(cmd.Context(), url, cmd.OutOrStdout())
		},
	}
	databaseFlag(cmd, &url)
	return cmd
}

func runClean(ctx context.Context, url string, out io.Writer) error {
	d, err := program.Open(ctx, url, layout(), 0, zap.NewNop())
	if err != nil {
		return err
	}
	defer d.Close()
	ours, err := ourSchemas(ctx, d)
	if err != nil {
		return err
	}
	if len(ours) == 0 {
		_, err := fmt.Fprintln(out, "nothing to remove")
		return err
	}
	if err := mustBeUnused(ctx, d); err != nil {
		return err
	}
	if err := program.Remove(ctx, d.Pool, ours); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "removed the schemas %s\n", strings.Join(ours, ", "))
	return err
}

// mustBeUnused fails while a node is alive: it would lose its tables.
func mustBeUnused(ctx context.Context, d *program.Database) error {
	runtime, err := millrace.New(millrace.Config{Store: d.Store})
	if err != nil {
		return err
	}
	summary, err := runtime.Summary(ctx)
	if err != nil {
		return nil // without the tables of the store no node can run
	}
	var alive []string
	for _, n := range summary.Nodes {
		if n.Alive {
			alive = append(alive, short(n.ID))
		}
	}
	if len(alive) > 0 {
		return fmt.Errorf("node %s is running: interrupt it first or, if it was killed, wait until its lease has expired", strings.Join(alive, " and node "))
	}
	return nil
}
