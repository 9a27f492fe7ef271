package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/program"
)

// chosen returns the scenarios of -scenario.
func (o options) chosen() []scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool {
		return len(o.scenarios) > 0 && !slices.Contains(o.scenarios, s.name)
	})
}

// run is the whole command. It removes everything that it started or created.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	dsn, pid := o.databaseURL, 0
	if dsn == "" && slices.ContainsFunc(o.chosen(), func(s scenario) bool { return !s.embedded }) {
		server, startErr := program.PrivateServer(ctx, serverConnections, privateSettings)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, program.Cleanup(ctx, server.Stop)) }()
		dsn, pid = server.DSN("postgres"), server.PID()
	}
	if dsn != "" && o.roundTrip > 0 {
		far, address, err := farFrom(ctx, dsn, o.roundTrip)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, far.close()) }()
		dsn = address
	}
	rep := newReporter(o, out)
	for _, s := range o.chosen() {
		var results []result
		for _, c := range s.cases(o.sizes) {
			if o.roundTrip > 0 {
				c.goals = nil // they were set for a server of the same machine
			}
			r, settings, err := runCase(ctx, s, c, dsn, pid, o.sizes)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, c.name, err)
			}
			if err := rep.report(r, settings); err != nil {
				return err
			}
			results = append(results, r)
		}
		if o.write != "" {
			if err := rep.write(o.write, s, results); err != nil {
				return err
			}
		}
	}
	return rep.summarize()
}

// serverConnections is how many connections a private server has for a scenario.
const serverConnections = 260

// privateSettings are the settings of a private server. The data of most scenarios fits into its memory.
var privateSettings = map[string]string{"shared_buffers": "256MB", "max_wal_size": "4GB"}

// runCase runs one case in an env of its own. It also returns the settings of the server, empty without one.
func runCase(ctx context.Context, s scenario, c benchCase, dsn string, pid int,
	o sizeOptions) (r result, settings map[string]string, err error) {
	e := &env{}
	if !s.embedded {
		e, err = newEnv(ctx, dsn, pid)
		if err != nil {
			return r, nil, err
		}
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	if e.Pool != nil {
		settings, err = readServerSettings(ctx, e.Pool)
		if err != nil {
			return r, nil, err
		}
	}
	begin := time.Now()
	defer func() {
		fmt.Fprintf(os.Stderr, "%s, %s: took %v\n", s.name, c.name, time.Since(begin).Round(100*time.Millisecond))
	}()
	contenders, err := c.prepare(ctx, e)
	if err != nil {
		return r, nil, fmt.Errorf("prepare: %w", err)
	}
	r = result{scenario: s.name, benchCase: c}
	for _, one := range contenders {
		r.contenders = append(r.contenders, one.name)
	}
	rounds := c.rounds
	if rounds == 0 {
		rounds = o.rounds
	}
	r.rounds, err = runRounds(ctx, rounds, len(c.metrics), contenders)
	return r, settings, err
}
