package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// errPoison is what a handler says about an event that -poison chose.
var errPoison = errors.New("chosen by -poison")

// place tells one event from all others before it has a position.
type place struct {
	stream  string
	version int64
}

// poison says which projection fails at which events. The choice is made before the first event is appended, from the
// events and the seed alone; a handler decides by the event's stream and version, so that each retry fails again.
type poison map[place]string

// at lists the chosen events of a projection.
func (p poison) at(name string) map[place]bool {
	places := make(map[place]bool)
	for at, projection := range p {
		if projection == name {
			places[at] = true
		}
	}
	return places
}

// onErrors are what -on-error may say, and what a projection then does about an event whose retries are used up. Commands
// that have no such flag say nothing.
var onErrors = map[string]projection.Action{
	"": projection.ActionPark, "park": projection.ActionPark, "park-stream": projection.ActionParkStream,
	"skip": projection.ActionSkip, "stop": projection.ActionStop,
}

// fault is what lets the handlers of a run fail at the chosen events, until it is mended. The zero value lets none fail.
type fault struct {
	chosen  poison
	first   map[string]int64 // the lowest version that was chosen of each stream
	onError projection.Action
	mended  atomic.Bool
}

func newFault(chosen poison, onError projection.Action) *fault {
	f := &fault{chosen: chosen, first: make(map[string]int64), onError: onError}
	for at := range chosen {
		if first, known := f.first[at.stream]; !known || at.version < first {
			f.first[at.stream] = at.version
		}
	}
	return f
}

// delays tells whether an event is not applied at once by all that it concerns: it was chosen, or it may be parked behind one
// that was.
func (f *fault) delays(at place) bool {
	if f.onError == projection.ActionParkStream {
		first, known := f.first[at.stream]
		return known && first <= at.version
	}
	_, chosen := f.chosen[at]
	return chosen
}

// choice picks events from a source of unknown length, each as likely as any other (reservoir sampling).
type choice struct {
	random   *rand.Rand
	wanted   int
	seen     int64
	versions map[string]int64
	picked   []candidate
}

type candidate struct {
	place
	eventType string
}

func newChoice(wanted int, seed uint64) *choice {
	return &choice{random: rand.New(rand.NewPCG(seed, 1)), wanted: wanted, versions: make(map[string]int64)}
}

func (c *choice) offer(r record) {
	if c.wanted == 0 {
		return
	}
	c.seen++
	c.versions[r.stream]++
	offered := candidate{place{r.stream, c.versions[r.stream]}, r.event.Type}
	if len(c.picked) < c.wanted {
		c.picked = append(c.picked, offered)
	} else if i := c.random.Int64N(c.seen); i < int64(c.wanted) {
		c.picked[i] = offered
	}
}

// chosen gives each picked event to one of the projections that it concerns.
func (c *choice) chosen() (poison, error) {
	if len(c.picked) < c.wanted {
		return nil, fmt.Errorf("-poison %d: there are only %d events", c.wanted, c.seen)
	}
	chosen := make(poison, len(c.picked))
	for _, p := range c.picked {
		models := concerned(p.eventType)
		chosen[p.place] = models[c.random.IntN(len(models))].name
	}
	return chosen, nil
}

type batchHandler = func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error

// failure is one of the ways in which handlers fail; it is called with a chosen event and never succeeds.
type failure func(ctx context.Context, tx pgx.Tx, e event.Envelope) error

// failing makes a read model's handler fail at the events that were chosen for it, before it handles any of the batch.
func (f *fault) failing(m readModel) batchHandler {
	handle, chosen := m.handle, f.chosen.at(m.name)
	if len(chosen) == 0 {
		return handle
	}
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		for _, e := range events {
			if chosen[place{e.Stream, e.Version}] && !f.mended.Load() {
				return m.fail(ctx, tx, e)
			}
		}
		return handle(ctx, tx, events)
	}
}

// failNamed says which event it is about, so that the runtime need not search.
func failNamed(_ context.Context, _ pgx.Tx, e event.Envelope) error {
	return projection.At(e.Position, errPoison)
}

// failUnnamed leaves it to the runtime to find the event, by halving the batch.
func failUnnamed(context.Context, pgx.Tx, event.Envelope) error { return errPoison }

// failBySQL fails in the database, so that the transaction can only be rolled back.
func failBySQL(ctx context.Context, tx pgx.Tx, _ event.Envelope) error {
	_, err := tx.Exec(ctx, "select 1 / 0")
	return fmt.Errorf("%w: %w", errPoison, err)
}

// failByPanic does not return.
func failByPanic(_ context.Context, _ pgx.Tx, e event.Envelope) error {
	panic(fmt.Errorf("%w: version %d of %s", errPoison, e.Version, e.Stream))
}
