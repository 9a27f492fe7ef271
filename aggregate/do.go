package aggregate

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/streams"
	"github.com/millrace-go/millrace/internal/valid"
)

// Result is the result of Do.
type Result[S any] struct {
	// Aggregate has the state after the command. Its Position is that for WaitFor: a read model that has reached it
	// shows the command.
	Aggregate[S]
	// Appended is the result of the append. It is the zero value if the decision returned no events: then nothing was
	// appended. If Appended.Repeated is set, the command was carried out before, Appended is the result of that time,
	// and Aggregate is the present state.
	Appended event.Appended
}

// Do carries out a command on an aggregate: it loads it, calls decide with its state, and appends the events that
// decide returns, if the stream is still at the version that was loaded. If it is not, Do reads what is new, and calls
// decide again.
//
// decide must not change the state that it gets, nor what its maps and slices contain. It may be called several times.
// An error of decide is returned as it is, and nothing is appended. If decide returns no events, nothing is appended
// either, and Result.Appended is zero. An event whose type the category does not know is refused: the aggregate could
// not be loaded again. An event for which a fold panics is refused only if the category has a condition (see Check),
// since Do then folds the events before it appends them.
//
// Do also returns the errors of Load and of the store's Append. After an error of the connection the events may have
// been appended or not. The command can be repeated with the same key.
func (c *Category[S]) Do(ctx context.Context, s Store, id string, decide func(state S) ([]event.Event, error),
	list ...Option) (Result[S], error) {
	stream, err := c.stream(id)
	if err != nil {
		return Result[S]{}, err
	}
	o, err := newOptions(ctx, list)
	if err != nil {
		return Result[S]{}, fmt.Errorf("carry out a command on %s: %w", excerpt.Quoted(stream), err)
	}
	command := command[S]{category: c, log: s.Streams(), options: o, at: c.unread(id, stream)}
	command.decide = func(state S) ([]event.Event, error) {
		events, err := decide(state)
		return o.caused(events), err
	}
	return command.run(ctx)
}

// command is a command in progress on one aggregate.
type command[S any] struct {
	category *Category[S]
	log      streams.Log
	options  options
	decide   func(state S) ([]event.Event, error)
	// at is what was loaded. folded reports that folds have applied other events to its state, which they may have
	// changed.
	at     loaded[S]
	folded bool
}

func (c *command[S]) run(ctx context.Context) (Result[S], error) {
	for try := 0; ; try++ {
		if err := c.category.read(ctx, c.log, &c.at); err != nil {
			return Result[S]{}, err
		}
		made, after, refusal := c.category.try(c.at.Aggregate, c.decide)
		c.folded = len(c.category.checks) > 0
		if refusal != nil || len(made.events) == 0 {
			return c.nothing(ctx, refusal)
		}
		result, err := c.append(ctx, made, after)
		if err == nil || try >= c.options.retries || !c.log.IsConflict(err) {
			return result, err
		}
		if c.folded {
			c.at, c.folded = c.category.unread(c.at.ID, c.at.Stream), false
		}
	}
}

// append appends the events of a decision. after is the aggregate after them, if folds have applied them.
func (c *command[S]) append(ctx context.Context, made decision[S], after Aggregate[S]) (Result[S], error) {
	commit := streams.Commit{
		Appends: []event.Appending{
			{Stream: c.at.Stream, Expected: c.options.expect(c.at.Version), Events: made.events},
		},
	}
	saved := c.at
	if c.category.due(&c.at, len(made.events)) {
		commit.Snapshots = c.saving(&saved)
	}
	appended, err := c.log.Commit(ctx, commit)
	switch {
	case err != nil:
		return Result[S]{}, err
	case appended[0].Repeated:
		return c.repeated(ctx, appended[0])
	case commit.Snapshots != nil:
		after = saved.Aggregate
	case !c.folded:
		after, err = made.applyTo(after)
	}
	after.Version, after.Position = appended[0].Version, appended[0].Last()
	return Result[S]{Aggregate: after, Appended: appended[0]}, err
}

// saving returns a function that saves a snapshot of the aggregate with the events of the transaction. It leaves the
// aggregate in to.
func (c *command[S]) saving(to *loaded[S]) func(context.Context, streams.Log) ([]streams.Snapshot, error) {
	if c.folded {
		*to = c.category.unread(c.at.ID, c.at.Stream)
	}
	c.folded = true
	return func(ctx context.Context, l streams.Log) ([]streams.Snapshot, error) {
		return c.category.save(ctx, l, to)
	}
}

// nothing returns the result of a command that appends nothing: the refusal, unless its key shows that it is a repeat.
func (c *command[S]) nothing(ctx context.Context, refusal error) (Result[S], error) {
	if c.options.keyed {
		first, found, err := c.log.First(ctx, c.options.key)
		switch {
		case err != nil:
			return Result[S]{}, err
		case found && first.Stream != c.at.Stream:
			return Result[S]{}, fmt.Errorf("carry out a command on %s: %w, for %s",
				excerpt.Quoted(c.at.Stream), event.ErrKeyReused, excerpt.Quoted(first.Stream))
		case found:
			return c.repeated(ctx, first.Appended)
		}
	}
	if refusal != nil {
		return Result[S]{}, refusal
	}
	return Result[S]{Aggregate: c.at.Aggregate}, nil
}

// repeated returns the result of a repeat. The state is loaded again, since folds may have changed what was loaded,
// which also may be from before the first time.
func (c *command[S]) repeated(ctx context.Context, first event.Appended) (Result[S], error) {
	now := c.category.unread(c.at.ID, c.at.Stream)
	if err := c.category.read(ctx, c.log, &now); err != nil {
		return Result[S]{}, err
	}
	return Result[S]{Aggregate: now.Aggregate, Appended: first}, nil
}

// Decide is what Do does between load and append, without a store: it returns the events of a decision on an aggregate,
// or why they would be refused. If the category has conditions, folds may change the maps and slices of the aggregate's
// state. Fold makes an aggregate without a store. millracetest.Given uses both.
func (c *Category[S]) Decide(a Aggregate[S], decide func(state S) ([]event.Event, error)) ([]event.Event, error) {
	made, _, refusal := c.try(a, decide)
	return made.events, refusal
}

// decision has the events of a decision, and for each what applies it, nil if it changes nothing.
type decision[S any] struct {
	events  []event.Event
	applied []applied[S]
}

// try decides. It returns the aggregate after the events if the category has conditions on it, and otherwise the
// aggregate as it is.
func (c *Category[S]) try(a Aggregate[S], decide func(state S) ([]event.Event,
	error)) (made decision[S], after Aggregate[S], refusal error) {
	made.events, refusal = decide(a.State)
	if refusal == nil {
		made, refusal = c.decided(a.Stream, made.events)
	}
	if refusal == nil && len(c.checks) > 0 {
		a, refusal = made.applyTo(a)
		if refusal == nil {
			refusal = c.check(a.State)
		}
	}
	return made, a, refusal
}

// Fold returns an aggregate with these events, without a store, for tests. They have the time of the call, unless
// Event.Time is set.
func (c *Category[S]) Fold(id string, events ...event.Event) (Aggregate[S], error) {
	stream, err := c.stream(id)
	if err != nil {
		return Aggregate[S]{}, err
	}
	a := Aggregate[S]{ID: id, Stream: stream}
	made, err := c.decided(stream, events)
	if err != nil {
		return a, err
	}
	return made.applyTo(a)
}

// decided decodes the events of a decision. It returns an error for an event that cannot be stored, or that the
// category could not fold.
func (c *Category[S]) decided(stream string, events []event.Event) (decision[S], error) {
	made := decision[S]{events: events, applied: make([]applied[S], len(events))}
	for i, e := range events {
		var err error
		made.applied[i], err = c.decidedEvent(stream, e)
		if err != nil {
			return made, fmt.Errorf("append to %s: event %d, %s: %w",
				excerpt.Quoted(stream), i, excerpt.Quoted(e.Type), err)
		}
	}
	return made, nil
}

// decidedEvent decodes one event of a decision. The function is nil if the category ignores events of the type.
func (c *Category[S]) decidedEvent(stream string, e event.Event) (applied[S], error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	f, folded := c.folds[e.Type]
	if !folded {
		return nil, c.ignores(e.Type)
	}
	return f.decided(&event.Envelope{Stream: stream, Type: e.Type, Body: valid.Body(e.Body)})
}

// applyTo returns an aggregate after the events, which may not be stored yet.
func (d decision[S]) applyTo(a Aggregate[S]) (Aggregate[S], error) {
	now := time.Now()
	for i, e := range d.events {
		headers, err := e.RawHeaders()
		if err != nil {
			return a, fmt.Errorf("append to %s: event %d: %w", excerpt.Quoted(a.Stream), i, err)
		}
		a.Version++
		if d.applied[i] == nil {
			continue
		}
		folded := event.Envelope{Stream: a.Stream, Version: a.Version, Type: e.Type, Body: valid.Body(e.Body),
			RawHeaders:  headers,
			CausationID: e.CausationID, CorrelationID: e.CorrelationID, Time: e.Time}
		if folded.Time.IsZero() {
			folded.Time = now
		}
		a.State = d.applied[i](a.State, &folded)
	}
	return a, nil
}

func (c *Category[S]) check(state S) error {
	for _, condition := range c.checks {
		if err := condition(state); err != nil {
			return err
		}
	}
	return nil
}
