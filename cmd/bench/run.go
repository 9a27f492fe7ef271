package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/millrace-go/millrace/internal/program"
)

// measurement compares contenders. It has one of two functions: take gets an empty env, and embedded needs no server.
type measurement struct {
	name     string
	take     func(ctx context.Context, e *env, o options, out io.Writer) error
	embedded func(ctx context.Context, o options, out io.Writer) error
}

var measurements = []measurement{
	{name: "latency", take: latency}, {name: "catchup", take: catchUp}, {name: "append", take: appends}, {name: "fairness", take: fairness},
	{name: "embedded", embedded: embedded},
}

// chosen returns the measurements of -only.
func (o options) chosen() []measurement {
	return slices.DeleteFunc(slices.Clone(measurements), func(m measurement) bool { return o.only != "" && o.only != m.name })
}

// run is the whole command. It removes everything that it started or created.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	dsn := o.databaseURL
	if dsn == "" && slices.ContainsFunc(o.chosen(), func(m measurement) bool { return m.take != nil }) {
		// The data of all measurements fits into its memory.
		server, startErr := program.PrivateServer(ctx, o.writers, map[string]string{"shared_buffers": "256MB"})
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, program.Cleanup(ctx, server.Stop)) }()
		dsn = server.DSN("postgres")
	}
	introduced := false
	for _, m := range o.chosen() {
		if m.embedded != nil {
			err = m.embedded(ctx, o, out)
		} else {
			err = measure(ctx, m, dsn, o, out, &introduced)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
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
	return m.take(ctx, e, o, out)
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
