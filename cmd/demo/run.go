package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace/projection"
)

// run is the whole demo. It returns when everything that it started or created is gone, or is to be kept; after hurry
// is done it waits for nothing but the end of a private server. It fails where a read model is not right.
func run(ctx, hurry context.Context, o options, out io.Writer) (s summary, err error) {
	defer func() { err = interruption(ctx, err) }()
	from, name := o.workload()
	found := survey{events: o.events}
	if o.input != "" || o.poison > 0 {
		if found, err = look(ctx, from, o.poison, o.seed); err != nil {
			return s, err
		}
	}
	log, closeLog, err := openLog(o.log)
	if err != nil {
		return s, err
	}
	defer closeLog()
	d, err := openDatabase(ctx, hurry, o, log)
	if err != nil {
		return s, err
	}
	defer func() {
		err = interruption(ctx, err)
		// From here on nothing tells of an interruption: connections to a server that was stopped break as a pipe does whose
		// reader is gone.
		ctx = context.WithoutCancel(ctx)
		err = errors.Join(err, d.close(hurry))
	}()

	fmt.Fprintf(out, "%d events %s, %d writers\non %s\n", found.events, name, o.writers, d.name)
	if note := o.poisonNote(); note != "" {
		fmt.Fprintln(out, note)
	}
	fmt.Fprintln(out)
	f := newFault(found.poison, o.action())
	c, err := newCourse(d.store, from, found.events, f, o, log, newScreen(out))
	if err != nil {
		return s, err
	}
	if err := c.drive(ctx, hurry); err != nil {
		return s, err
	}
	v, err := check(ctx, d.pool, d.store, f)
	if err != nil {
		return s, err
	}
	v.mustHold(c.load.appended.Load())
	if s, err = c.summary(ctx, d, v); err != nil {
		return s, err
	}
	var kept []string
	if o.keep {
		kept = d.schemas()
	}
	if err := s.print(out, v, kept, o.json); err != nil {
		return s, fmt.Errorf("print the summary: %w", err)
	}
	return s, v.err()
}

// interruption is why something failed: where it was interrupted that is the reason, whatever else it led to.
func interruption(ctx context.Context, err error) error {
	if ctx.Err() == nil || err == nil {
		return err
	}
	return errors.Join(context.Cause(ctx), leftBehind(err))
}

// leftBehindError tells that something could not be removed, which is worth saying whatever else happened.
type leftBehindError struct{ err error }

func (e leftBehindError) Error() string { return e.err.Error() }
func (e leftBehindError) Unwrap() error { return e.err }

// leftBehind is that part of an error, or nil.
func leftBehind(err error) error {
	var left leftBehindError
	if errors.As(err, &left) {
		return left
	}
	return nil
}

// summary is what the run came to; the runtime has stopped, so that the checkpoints are final.
func (c *course) summary(ctx context.Context, d *database, v verdict) (summary, error) {
	rows, err := d.store.Engine().Projections(ctx, []string{projection.DefaultTenant})
	if err != nil {
		return summary{}, err
	}
	s := summary{
		Events:           v.events,
		Streams:          v.streams,
		Seconds:          rounded(c.took.Seconds()),
		AppendPerSecond:  rounded(perSecond(c.loaded, c.appending.Seconds())),
		AppliedPerSecond: rounded(perSecond(c.applied, c.applying.Seconds())),
		Latency:          c.load.probe.rest.latency(),
		LatencyUnderLoad: c.load.probe.load.latency(),
		DeadLetters:      v.letters(),
		Verified:         len(v.wrong) == 0,
	}
	for i, m := range v.models {
		p := projectionSummary{Name: m.name, Applied: c.last.projections[i].applied, Parked: m.parked, Replayed: m.replayed, Skipped: m.skipped, OutOfOrder: m.disordered, rows: m.rows, wrong: m.wrong}
		for _, row := range rows {
			if row.ID.Name == m.name {
				p.Checkpoint = row.Checkpoint
			}
		}
		s.Projections = append(s.Projections, p)
	}
	return s, nil
}

// openLog returns a logger to a file, or a silent one.
func openLog(path string) (*zap.Logger, func(), error) {
	if path == "" {
		return zap.NewNop(), func() {}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.AddSync(file), zap.InfoLevel)
	return zap.New(core), func() { file.Close() }, nil
}
