package tests_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// The events and the error of docs/commands.md.
type (
	Deposited struct{ Cents int64 }
	Withdrawn struct{ Cents int64 }
)

func (Deposited) EventType() string { return "Deposited" }
func (Withdrawn) EventType() string { return "Withdrawn" }

var ErrTooLittle = errors.New("the account has too little")

func deposit(ctx context.Context, streams Streams, id, stream string, cents int64) (event.Appended, error) {
	deposited := event.New(Deposited{Cents: cents})
	deposited.CausationID = id
	return streams.Append(ctx, stream, event.Any.WithKey(id), deposited)
}

// Streams is a store, or one of its tenants.
type Streams interface {
	event.Appender
	event.Reader
}

// account is what a decision needs to know, folded from the events of its stream.
type account struct {
	cents, version int64
	// done are the results of commands, by their ids.
	done map[string]event.Appended
}

func fold(events iter.Seq2[event.Envelope, error]) (a account, err error) {
	a.done = make(map[string]event.Appended)
	for e, err := range events {
		if err != nil {
			return a, err
		}
		var deposited Deposited
		var withdrawn Withdrawn
		switch e.Type {
		case deposited.EventType():
			err = e.Decode(&deposited, event.Strict)
		case withdrawn.EventType():
			err = e.Decode(&withdrawn, event.Strict)
		default:
			err = fmt.Errorf("event %d of stream %s is a %s, which this release does not know", e.Version, e.Stream, e.Type)
		}
		if err != nil {
			return a, err
		}
		a.cents += deposited.Cents - withdrawn.Cents
		a.version = e.Version
		if id := e.CausationID; id != "" {
			a.done[id] = event.Appended{Positions: append(a.done[id].Positions, e.Position), Version: e.Version, Repeated: true}
		}
	}
	return a, nil
}

// withdraw carries out the command id. It may be called again with the same id, by any node, until it returns no error.
func withdraw(ctx context.Context, streams Streams, id, stream string, cents int64) (event.Appended, error) {
	for {
		a, err := fold(streams.ReadStream(ctx, stream, 1))
		if err != nil {
			return event.Appended{}, err
		}
		if result, done := a.done[id]; done { // before the decision, since the state has the effect of this command
			return result, nil
		}
		if a.cents < cents {
			return event.Appended{}, ErrTooLittle
		}
		withdrawn := event.New(Withdrawn{Cents: cents})
		withdrawn.CausationID = id
		result, err := streams.Append(ctx, stream, event.Exact(a.version).WithKey(id), withdrawn)
		if !errors.Is(err, event.ErrVersionConflict) {
			return result, err
		}
	}
}

// centsOf returns what is in an account.
func centsOf(b *kit.Bundle, stream string) account {
	b.T.Helper()
	a, err := fold(b.Store.ReadStream(b.Ctx, stream, 1))
	b.Must(err)
	return a
}

// A repeat returns the first result, also if the command has emptied the account, if the account has changed since, and if the key was
// deleted by now.
func TestRepeatedCommandHasOneEffect(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))})
		for range 2 {
			_, err := deposit(b.Ctx, b.Store, "a", "account-1", 100)
			b.Must(err)
		}
		first, err := withdraw(b.Ctx, b.Store, "b", "account-1", 100)
		b.Must(err)
		for _, more := range []int64{0, 5} {
			if more > 0 {
				_, err := deposit(b.Ctx, b.Store, "c", "account-1", more)
				b.Must(err)
			}
			again, err := withdraw(b.Ctx, b.Store, "b", "account-1", 100)
			if err != nil || !again.Repeated || again.Last() != first.Last() || again.Version != first.Version {
				t.Errorf("the repeat: %+v, %v; the first: %+v", again, err, first)
			}
			b.Reaches(rt, "p", again.Last())
			if a := centsOf(b, "account-1"); a.cents != more {
				t.Errorf("the account has %d cents, want %d", a.cents, more)
			}
		}
		if result, err := withdraw(b.Ctx, b.Store, "d", "account-1", 6); !errors.Is(err, ErrTooLittle) || result.Last() != 0 {
			t.Errorf("more than there is: %+v, %v", result, err)
		}
		if _, err := withdraw(b.Ctx, b.Store, "b", "account-2", 0); !errors.Is(err, event.ErrKeyReused) {
			t.Errorf("the same id for another account: %v", err)
		}
	})
}

// A command that finds an event of the next release decides nothing.
func TestCommandRefusesATypeThatItDoesNotKnow(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		_, err := deposit(b.Ctx, b.Store, "a", "account-1", 100)
		b.Must(err)
		_, err = b.Store.Append(b.Ctx, "account-1", event.Any, event.Untyped("Withdrawn.2", nil))
		b.Must(err)
		if _, err := withdraw(b.Ctx, b.Store, "b", "account-1", 100); err == nil || !strings.Contains(err.Error(), "event 2 of stream account-1 is a Withdrawn.2") {
			t.Error(err)
		}
		if head := b.Head(); head != 2 {
			t.Errorf("the last position is %d", head)
		}
	})
}

// Many callers send each command at once and again, and every third answer is lost. No account is overdrawn, and each command has one
// effect.
func TestConcurrentCommandsHaveOneEffectEach(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		var appends atomic.Int64
		store := b.Around(func(next event.AppendFunc) event.AppendFunc {
			return func(ctx context.Context, a event.Appending) (event.Appended, error) {
				result, err := next(ctx, a)
				if err == nil && appends.Add(1)%3 == 0 {
					return event.Appended{}, kit.ErrOnPurpose
				}
				return result, err
			}
		})
		_, err := deposit(b.Ctx, b.Store, "first", "account-1", 10)
		b.Must(err)
		var refused atomic.Int64
		b.Must(kit.Together(8, func(i int) error {
			for n := range 5 {
				id := fmt.Sprintf("%d-%d", i/2, n) // two callers send each command
				for {
					_, err := withdraw(b.Ctx, store, id, "account-1", 1)
					if errors.Is(err, kit.ErrOnPurpose) {
						continue // its answer was lost
					}
					if errors.Is(err, ErrTooLittle) {
						refused.Add(1)
					} else if err != nil {
						return err
					}
					break
				}
			}
			return nil
		}))
		a := centsOf(b, "account-1")
		if a.cents != 0 || a.version != 11 || len(a.done) != 11 || refused.Load() != 20 {
			t.Errorf("%d cents after %d events of %d commands, and %d were refused", a.cents, a.version, len(a.done), refused.Load())
		}
	})
}
