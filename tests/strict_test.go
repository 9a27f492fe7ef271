package tests_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// renamed is the body of "counted" events after its member i was renamed to n.
type renamed struct {
	N int `json:"n"`
}

func (renamed) EventType() string { return "counted" }

// recordTyped are handlers of each typed shape, which record their events under the name of the shape.
func recordTyped[T event.Typed](s kit.Store, o ...event.DecodeOption) map[string]millrace.Handler {
	of := kit.Typed[T]{Store: s}
	all := map[string]millrace.Handler{
		"on": of.On(func(ctx context.Context, tx kit.Tx,
			e event.Of[T]) error {
			return tx.Record(ctx, "on", e.Envelope)
		}, o...),
		"batch": of.OnBatch(func(ctx context.Context, tx kit.Tx, events []event.Of[T]) error {
			return tx.Record(ctx, "batch", kit.EnvelopesOf(events)...)
		}, o...),
		"queued": of.OnQueued(func(_ context.Context, q kit.Queue, e event.Of[T]) error {
			q.Record("queued", e.Envelope)
			return nil
		}, o...),
		"queued-batch": of.OnQueuedBatch(func(_ context.Context, q kit.Queue, events []event.Of[T]) error {
			q.Record("queued-batch", kit.EnvelopesOf(events)...)
			return nil
		}, o...),
	}
	noted := kit.Typed[kit.Noted]{Store: s}
	all["route"] = kit.Route(of.On(func(ctx context.Context, tx kit.Tx,
		e event.Of[T]) error {
		return tx.Record(ctx, "route", e.Envelope)
	}, o...),
		noted.OnBatch(func(ctx context.Context, tx kit.Tx, events []event.Of[kit.Noted]) error {
			return tx.Record(ctx, "route", kit.EnvelopesOf(events)...)
		}))
	return all
}

// An event whose members are not those of the Go type takes the road of a poison event, in each typed shape and for
// each tenant: one attempt, a dead letter that names type, position and member, and all other events are applied.
func TestStrictHandlersParkEventsOfAnotherShape(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		for _, tenant := range []kit.Tenant{b.Store, acme} {
			// as the decoder, it ignores the case
			for i, body := range []string{`{"n": 1}`, `{"i": 2}`, `{"n": 3}`, `{}`, `{"N": 5}`} {
				_, err := tenant.Append(b.Ctx, fmt.Sprint("s", i), event.Any,
					event.Event{Type: "counted", Body: []byte(body)}, event.New(kit.Noted{}))
				b.Must(err)
			}
		}
		for shape, h := range recordTyped[renamed](b.Store, event.Strict) {
			for _, tenant := range []string{projection.DefaultTenant, "acme"} {
				id := millrace.ProjectionID{Tenant: tenant, Name: shape + "-" + tenant}
				b.Idle(millrace.Projection{Name: id.Name, Tenants: []string{tenant}, AnyOrder: true, Handler: h})
				letters, err := b.Store.DeadLetters(id).List(b.Ctx, projection.DeadLetterPage{})
				b.Must(err)
				if len(letters) != 2 {
					t.Fatalf("%s: parked %+v", id, letters)
				}
				for i, want := range []string{
					`decode event 3 (counted of stream "s1") as tests_test.renamed at i: the type has no such field`,
					`decode event 7 (counted of stream "s3") as tests_test.renamed at n: the body has no such member`,
				} {
					if letters[i].Attempts != 1 || !strings.Contains(letters[i].Error, want) {
						t.Errorf("%s: dead letter %+v, want %s", id, letters[i], want)
					}
				}
			}
			applied, err := b.Store.Applied(b.Ctx, shape)
			b.Must(err)
			if got, want := placesApplied(applied), wantedOf(shape); !slices.Equal(got, want) {
				t.Errorf("%s: applied %v, want %v", shape, got, want)
			}
		}
	})
}

// wantedOf are the positions that a shape applies for two tenants.
func wantedOf(shape string) []int64 {
	one := []int64{1, 5, 9}
	if shape == "route" {
		one = []int64{1, 2, 4, 5, 6, 8, 9, 10}
	}
	return append(slices.Clone(one), one...)
}

func placesApplied(applied []kit.Applied) (positions []int64) {
	for _, a := range applied {
		positions = append(positions, a.Position)
	}
	return positions
}

// Without Strict the same events decode, and a member that was renamed is zero.
func TestHandlersThatAreNotStrictDecodeWhatTheyKnow(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		for shape, h := range recordTyped[renamed](b.Store) {
			b.Idle(millrace.Projection{Name: shape, Handler: h})
			b.Verify(shape)
			if letters := b.DeadLettersOf(shape); len(letters) > 0 {
				t.Errorf("%s: parked %+v", shape, letters)
			}
		}
	})
}
