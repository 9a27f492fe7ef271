package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/report"
)

func cleanCommand() *cobra.Command {
	var flags storeFlags
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove everything that the demo created",
		Long: `Removes the schemas or the file that the demo created, and nothing else. While a node runs, it fails and removes
nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			at, err := flags.place(cmd)
			if err != nil {
				return err
			}
			return runClean(cmd.Context(), at, cmd.OutOrStdout())
		},
	}
	flags.add(cmd)
	return cmd
}

func runClean(ctx context.Context, at place, out io.Writer) error {
	removed, err := at.clean(ctx)
	if err != nil {
		return err
	}
	if removed == "" {
		_, err := fmt.Fprintln(out, "nothing to remove")
		return err
	}
	_, err = fmt.Fprintf(out, "removed %s\n", removed)
	return err
}

// mustBeUnused fails while a node is alive: it would lose its tables.
func mustBeUnused(ctx context.Context, d database) error {
	runtime, err := millrace.New(millrace.Config{Store: d})
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
			alive = append(alive, report.Short(n.ID))
		}
	}
	if len(alive) > 0 {
		return fmt.Errorf("node %s is running: interrupt it first or, if it was killed, wait until its lease has expired", strings.Join(alive, " and node "))
	}
	return nil
}
