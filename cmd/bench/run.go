package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// measurement is one kind of figures. It begins with an empty lab.
type measurement struct {
	name string
	take func(ctx context.Context, l *lab, o options, out io.Writer) error
}

var measurements = []measurement{{"latency", latency}, {"catchup", catchUp}, {"append", appends}}

// run is the whole command. It returns when everything that it started or created is gone.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	dsn := o.databaseURL
	if dsn == "" {
		server, err := pgtest.Start(ctx, privateServer(o))
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
			defer cancel()
			err = errors.Join(err, server.Stop(ctx))
		}()
		dsn = server.DSN("postgres")
	}
	introduced := false
	for _, m := range measurements {
		if o.only != "" && o.only != m.name {
			continue
		}
		l, err := newLab(ctx, dsn, o.writers)
		if err != nil {
			return err
		}
		if !introduced {
			introduced, err = true, introduce(ctx, l, o, out)
		}
		if err == nil {
			err = m.take(ctx, l, o, out)
		}
		if err != nil && ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", m.name, err)
		}
		if err := errors.Join(err, l.close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// privateServer has memory enough for what is measured.
func privateServer(o options) pgtest.Options {
	server := program.PrivateServer(o.writers)
	server.Settings["shared_buffers"] = "256MB"
	return server
}

// introduce says what the figures are of.
func introduce(ctx context.Context, l *lab, o options, out io.Writer) error {
	var version, fsync, commit string
	err := l.pool.QueryRow(ctx, "select split_part(current_setting('server_version'), ' ', 1), current_setting('fsync'), current_setting('synchronous_commit')").
		Scan(&version, &fsync, &commit)
	if err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	_, err = fmt.Fprintf(out, "PostgreSQL %s, fsync %s, synchronous_commit %s; %d processors on this side; rounds: %d\n", version, fsync, commit,
		runtime.GOMAXPROCS(0), o.rounds)
	return err
}
