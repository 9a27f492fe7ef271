package aggregates_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// traced is a state of the ids of its events.
type traced struct{ IDs []string }

func (s traced) with(e event.Envelope) traced {
	return traced{append(slices.Clip(s.IDs), e.CausationID+" "+e.CorrelationID)}
}

var traces = aggregate.New("trace",
	aggregate.On(func(s traced, e event.Of[deposited]) traced { return s.with(e.Envelope) }),
	aggregate.On(func(s traced, e event.Of[withdrawn]) traced { return s.with(e.Envelope) }),
)

func trace(traced) ([]event.Event, error) {
	own := event.New(withdrawn{})
	own.CausationID = "mine"
	return []event.Event{event.New(deposited{}), own}, nil
}

// The commands run in a handler's transaction, and each is for an event of its own. A key stays the cause, since it
// identifies the command.
func TestDecisionsInAHandlerNameTheirCause(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "in", event.Any, kit.SomeEvents(4)...)
		b.MustAppend(b.Store, "in", event.Any, event.Event{Type: "counted", CorrelationID: "talk"})
		states := make(map[string]traced)
		do := func(ctx context.Context, s aggregate.Store, id string, list ...aggregate.Option) error {
			r, err := traces.Do(ctx, s, id, trace, list...)
			states[id] = r.State
			return err
		}
		run := func(ctx context.Context, s aggregate.Store, id string, list ...aggregate.Option) error {
			_, err := aggregate.Run(ctx, s, func(ctx context.Context, u *aggregate.Unit) error {
				m, err := traces.Member(ctx, u, id)
				if err != nil {
					return err
				}
				events, _ := trace(m.State)
				if err := m.Append(events...); err != nil {
					return err
				}
				states[id] = m.State
				return u.Append("log-"+id, event.Any, event.New(kit.Noted{}))
			}, list...)
			return err
		}
		commands := map[int64]func(ctx context.Context, s aggregate.Store) error{
			1: func(ctx context.Context, s aggregate.Store) error { return do(ctx, s, "do") },
			2: func(ctx context.Context, s aggregate.Store) error { return do(ctx, s, "keyed", aggregate.Key("k1")) },
			3: func(ctx context.Context, s aggregate.Store) error { return run(ctx, s, "run") },
			4: func(ctx context.Context, s aggregate.Store) error {
				return run(ctx, s, "run keyed", aggregate.Key("k2"))
			},
			5: func(ctx context.Context, s aggregate.Store) error {
				return do(event.WithCorrelation(ctx, "other"), s, "correlated")
			},
		}
		b.Idle(millrace.Projection{Name: "p", Types: []string{"counted"}, Handler: b.Store.Each(
			func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				return commands[e.Position](ctx, b.Store.Within(tx))
			})})
		for id, want := range map[string][]string{
			"do": {"default/1 default/1", "mine default/1"}, "keyed": {"k1 default/2", "mine default/2"},
			"run": {"default/3 default/3", "mine default/3"}, "run keyed": {"k2 default/4", "mine default/4"},
			"correlated": {"default/5 other", "mine other"},
		} {
			loaded, err := traces.Load(b.Ctx, b.Store, id)
			b.Must(err)
			if !slices.Equal(loaded.State.IDs, want) {
				t.Errorf("%s: %q, want %q", id, loaded.State.IDs, want)
			}
			if !reflect.DeepEqual(states[id], loaded.State) {
				t.Errorf("%s: the state after the command was %q, and %q is loaded", id, states[id], loaded.State)
			}
		}
		for stream, want := range map[string]string{"log-run": "default/3 default/3", "log-run keyed": "k2 default/4"} {
			log := b.Collect(b.Store.ReadStream(b.Ctx, stream, 1))
			if got := log[0].CausationID + " " + log[0].CorrelationID; got != want {
				t.Errorf("%s: %q, want %q", stream, got, want)
			}
		}
	})
}

// A command of a request has the key of its client and the id of the request, and what a hook of it appends has the
// latter.
func TestCommandOfARequestIsCorrelated(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		ctx := event.WithCorrelation(b.Ctx, "request")
		for range 2 {
			_, err := traces.Do(ctx, b.Store, "a", trace, aggregate.Key("k1"))
			b.Must(err)
		}
		_, err := aggregate.Run(ctx, b.Store, func(ctx context.Context, u *aggregate.Unit) error {
			hook := b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
				_, err := b.Store.AppendTx(ctx, tx, "hook", event.Any, event.New(kit.Noted{}))
				return err
			})
			if err := u.Then(hook); err != nil {
				return err
			}
			return u.Append("more", event.Any, event.New(kit.Noted{}))
		}, aggregate.Key("k2"))
		b.Must(err)
		for stream, want := range map[string][]string{"trace-a": {"k1 request", "mine request"}, "more": {"k2 request"},
			"hook": {" request"}} {
			var got []string
			for _, e := range b.Collect(b.Store.ReadStream(b.Ctx, stream, 1)) {
				got = append(got, e.CausationID+" "+e.CorrelationID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", stream, got, want)
			}
		}
	})
}
