package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// errPoison is the error of a handler at an event that -poison chose.
var errPoison = errors.New("chosen by -poison")

// eventID identifies an event before it has a position.
type eventID struct {
	stream  string
	version int64
}

// poison has the projection that fails at each chosen event. The events and the seed alone determine it.
type poison map[eventID]string

// of returns the events at which a projection fails.
func (p poison) of(name string) map[eventID]bool {
	places := make(map[eventID]bool)
	for at, projection := range p {
		if projection == name {
			places[at] = true
		}
	}
	return places
}

// onErrors are the values of -on-error. Commands without that flag leave it empty.
var onErrors = map[string]projection.Action{
	"": projection.ActionParkStream, "park": projection.ActionPark, "park-stream": projection.ActionParkStream,
	"skip": projection.ActionSkip, "stop": projection.ActionStop,
}

// fault makes handlers fail at the chosen events until it is fixed. With the zero value none fails.
type fault struct {
	chosen  poison
	onError projection.Action
	fixed   atomic.Bool
}

func newFault(chosen poison, onError projection.Action) *fault {
	return &fault{chosen: chosen, onError: onError}
}

// choice picks random events from a source of unknown length (reservoir sampling).
type choice struct {
	random   *rand.Rand
	wanted   int
	seen     int64
	versions map[string]int64
	picked   []candidate
}

type candidate struct {
	eventID
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
	offered := candidate{eventID{r.stream, c.versions[r.stream]}, r.event.Type}
	if len(c.picked) < c.wanted {
		c.picked = append(c.picked, offered)
	} else if i := c.random.Int64N(c.seen); i < int64(c.wanted) {
		c.picked[i] = offered
	}
}

// chosen assigns each picked event to one of the projections that handle it.
func (c *choice) chosen() (poison, error) {
	if len(c.picked) < c.wanted {
		return nil, fmt.Errorf("-poison %d: there are only %d events", c.wanted, c.seen)
	}
	chosen := make(poison, len(c.picked))
	for _, p := range c.picked {
		models := concerned(p.eventType)
		chosen[p.eventID] = models[c.random.IntN(len(models))].name
	}
	return chosen, nil
}

// failure is a way in which handlers fail at an event. It never returns nil.
type failure func(ctx context.Context, tx transaction, e event.Envelope) error

// failing returns the handler of a read model with the fault. It fails before it handles any event of the batch.
func (f *fault) failing(m readModel) batchHandler {
	handle, chosen := m.handle, f.chosen.of(m.name)
	if len(chosen) == 0 {
		return handle
	}
	return func(ctx context.Context, tx transaction, events []event.Envelope) error {
		for _, e := range events {
			if chosen[eventID{e.Stream, e.Version}] && !f.fixed.Load() {
				return m.fail(ctx, tx, e)
			}
		}
		return handle(ctx, tx, events)
	}
}

// failNamed names the event in its error.
func failNamed(_ context.Context, _ transaction, e event.Envelope) error {
	return projection.At(e.Position, errPoison)
}

// failUnnamed does not name it, so that the runtime finds the event by halving the batch.
func failUnnamed(context.Context, transaction, event.Envelope) error { return errPoison }

// failBySQL fails in the database.
func failBySQL(ctx context.Context, tx transaction, _ event.Envelope) error {
	err := tx.exec(ctx, "insert into {schema}.payments values (1, 0, 0)") // this row exists
	return fmt.Errorf("%w: %w", errPoison, err)
}

// failByPanic panics.
func failByPanic(_ context.Context, _ transaction, e event.Envelope) error {
	panic(fmt.Errorf("%w: version %d of %s", errPoison, e.Version, e.Stream))
}
