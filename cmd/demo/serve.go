package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// servePort is the default port. It is fixed, so that commands can be written down.
const servePort = 25432

func serveCommand() *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start a private PostgreSQL for the other commands, and remove it when interrupted",
		Long: `Starts a private PostgreSQL from the installed binaries on 127.0.0.1, prints its URL, waits until it is interrupted, and
removes the server with its data. Every user of this machine can connect to it, without a password.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return fmt.Errorf("-port must be from 0 to 65535: %d", port)
			}
			return runServe(cmd.Context(), port, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&port, "port", servePort, "port on 127.0.0.1; 0 is any free port")
	return cmd
}

func runServe(ctx context.Context, port int, out io.Writer) (err error) {
	server, err := pgtest.Start(ctx, pgtest.Options{Port: port, Settings: map[string]string{"fsync": "on"}})
	if err != nil {
		return fmt.Errorf("-port %d: %w", port, err)
	}
	defer func() { err = errors.Join(err, program.Cleanup(ctx, server.Stop)) }()
	_, err = fmt.Fprintf(out,
		"a private PostgreSQL runs until you interrupt this command; in other terminals:\n\nexport DATABASE_URL='%s'\n",
		server.TCPDSN("postgres"))
	if err != nil {
		return err
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if server.PID() == 0 {
				return errors.New("PostgreSQL has ended: " + server.Log())
			}
		}
	}
}
