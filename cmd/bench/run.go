package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/millrace-go/millrace/internal/program"
)

// measurement compares contenders in an empty env.
type measurement struct {
	name string
	take func(ctx context.Context, e *env, o options, out io.Writer) error
}

var measurements = []measurement{{"latency", latency}, {"catchup", catchUp}, {"append", appends}, {"fairness", fairness}}

// run is the whole command. It removes everything that it started or created.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	dsn := o.databaseURL
	if dsn == "" {
		// The data of all measurements fits into its memory.
		server, startErr := program.PrivateServer(ctx, o.writers, map[string]string{"shared_buffers": "256MB"})
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, program.Cleanup(ctx, server.Stop)) }()
		dsn = server.DSN("postgres")
	}
	introduced := false
	for _, m := range measurements {
		if o.only != "" && o.only != m.name {
			continue
		}
		if err := measure(ctx, m, dsn, o, out, &introduced); err != nil {
			return err
		}
	}
	return nil
}

// measure runs one measurement in an env of its own.
func measure(ctx context.Context, m measurement, dsn string, o options, out io.Writer, introduced *bool) (err error) {
	e, err := newEnv(ctx, dsn, o.writers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	if !*introduced {
		*introduced = true
		if err := introduce(ctx, e, o, out); err != nil {
			return err
		}
	}
	if err := m.take(ctx, e, o, out); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// introduce prints the environment of the figures.
func introduce(ctx context.Context, e *env, o options, out io.Writer) error {
	var version, fsync, commit string
	err := e.Pool.QueryRow(ctx, "select split_part(current_setting('server_version'), ' ', 1), current_setting('fsync'), current_setting('synchronous_commit')").
		Scan(&version, &fsync, &commit)
	if err != nil {
		return fmt.Errorf("read the server's version: %w", err)
	}
	_, err = fmt.Fprintf(out, "PostgreSQL %s, fsync %s, synchronous_commit %s; %d processors; rounds: %d\n", version, fsync, commit,
		runtime.GOMAXPROCS(0), o.rounds)
	return err
}
