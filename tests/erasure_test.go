package tests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// secret is what must be found nowhere after an erasure.
const secret = "ada@example.org"

// ofAPerson are events whose bodies, headers, causations and correlations have the secret.
func ofAPerson(n int) (events []event.Event) {
	for i := range n {
		e := event.New(kit.Counted{I: i + 1})
		e.Body = json.RawMessage(fmt.Sprintf(`{"i": %d, "mail": %q}`, i+1, secret))
		e.Headers = map[string]string{"user": secret, "redacted": "{"}
		e.CausationID, e.CorrelationID = secret, secret
		events = append(events, e)
	}
	return events
}

// mustErase checks an erasure beside what the store has recorded.
func mustErase(b *kit.Bundle, tenant kit.Tenant, stream string, events int64) event.Erasure {
	b.T.Helper()
	erased, err := tenant.EraseStream(b.Ctx, stream, "request 17")
	b.Must(err)
	all, err := tenant.Erasures(b.Ctx)
	b.Must(err)
	recorded, err := json.Marshal(all[len(all)-1])
	b.Must(err)
	if text, err := json.Marshal(erased); err != nil || erased.Events != events || erased.EndedAt.IsZero() ||
		string(text) != string(recorded) {
		b.T.Errorf("erased %s, recorded %s, want %d events (%v)", text, recorded, events, err)
	}
	return erased
}

// The events of a stream lose what was in them and keep their places. Other streams and other tenants are as before.
func TestErasedStreamKeepsItsPlaces(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		for _, tenant := range []kit.Tenant{b.Store, acme} {
			for _, stream := range []string{"other", "ada", "other", "ada"} { // ada has the newest event
				b.MustAppend(tenant, stream, event.Any, ofAPerson(2)...)
			}
		}
		before, others := b.All(b.Store), b.All(acme)
		mustErase(b, b.Store, "ada", 4)
		for i, e := range b.All(b.Store) {
			was := before[i]
			if e.Stream == "other" {
				if !reflect.DeepEqual(e, was) || e.Redacted() {
					t.Errorf("%+v, was %+v", e, was)
				}
				continue
			}
			text, err := json.Marshal(e)
			b.Must(err)
			if !e.Redacted() || string(e.Body) != `"redacted"` || len(e.Headers()) != 0 ||
				bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s is left", text)
			}
			if _, err := event.As[kit.Counted](e); !errors.Is(err, event.ErrRedacted) {
				t.Errorf("decoded with %v", err)
			}
			was.Body, was.RawHeaders, was.CausationID, was.CorrelationID = e.Body, e.RawHeaders, "", ""
			if !reflect.DeepEqual(e, was) {
				t.Errorf("%+v, was %+v", e, was)
			}
		}
		if after := b.All(acme); !reflect.DeepEqual(after, others) {
			t.Errorf("another tenant has %+v, had %+v", after, others)
		}
		mustErase(b, b.Store, "ada", 0) // again
		if r := b.MustAppend(b.Store, "ada", event.Exact(4), ofAPerson(1)...); r.Last() != 9 {
			t.Errorf("appended at %+v", r)
		}
		mustErase(b, b.Store, "ada", 1)
		p := b.Recorders("p")[0]
		p.Tenants = []string{projection.DefaultTenant}
		b.Idle(p)
		b.Verify("p")
	})
}

// Other programs can insert events whose headers look like those of a redacted event, and whose bodies are as they
// were.
func TestErasureRemovesWhatLooksRedacted(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		text := json.RawMessage(`{"redacted": {"by": "` + secret + `"}}`)
		looks := event.Envelope{Type: "counted", Body: text, RawHeaders: bytes.ReplaceAll(text, []byte(" "), nil),
			CausationID: secret}.Event()
		b.MustAppend(b.Store, "ada", event.Any, looks)
		if e := b.All(b.Store)[0]; !e.Redacted() || !bytes.Contains(e.Body, []byte(secret)) {
			t.Fatalf("appended %+v", e)
		}
		mustErase(b, b.Store, "ada", 0)
		if left, err := json.Marshal(b.All(b.Store)); err != nil || bytes.Contains(left, []byte(secret)) {
			t.Errorf("left: %s, %v", left, err)
		}
	})
}

func TestEventsAreRedactedByPosition(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "a", event.Any.WithKey("k1"), ofAPerson(2)...)
		b.MustAppend(b.Store, "a", event.Any.WithKey("k2"), ofAPerson(2)...)
		b.MustAppend(b.Store, "b", event.Any.WithKey("k3"), ofAPerson(2)...)
		positions := []int64{6, 2, 6}
		erased, err := b.Store.RedactEvents(b.Ctx, positions, "request 17")
		b.Must(err)
		if !slices.Equal(erased.Positions, []int64{2, 6}) || erased.Events != 2 || erased.Stream != "" ||
			!slices.Equal(positions, []int64{6, 2, 6}) {
			t.Errorf("%+v of %v", erased, positions)
		}
		for _, e := range b.All(b.Store) {
			if redacted := e.Position == 2 || e.Position == 6; e.Redacted() != redacted {
				t.Errorf("%+v", e)
			}
		}
		for key, kept := range map[string]bool{"k1": false, "k2": true, "k3": false} {
			stream := "a"
			if key == "k3" {
				stream = "b"
			}
			if r := b.MustAppend(b.Store, stream, event.Any.WithKey(key), kit.SomeEvents(1)...); r.Repeated != kept {
				t.Errorf("key %s: %+v", key, r)
			}
		}
	})
}

// A copy of a redacted event in another store or tenant is redacted, and others are as they were.
func TestCopiesOfRedactedEventsAreRedacted(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		for _, stream := range []string{"ada", "other"} {
			b.MustAppend(b.Store, stream, event.Any, ofAPerson(2)...)
		}
		mustErase(b, b.Store, "ada", 2)
		for _, e := range b.All(b.Store) {
			b.MustAppend(acme, e.Stream, event.Any, e.Event())
		}
		copies := b.All(acme)
		for i, e := range b.All(b.Store) {
			e.Time = copies[i].Time
			if !reflect.DeepEqual(copies[i], e) {
				t.Errorf("the copy of %+v is %+v", e, copies[i])
			}
		}
	})
}

// Nothing is redacted or recorded for bad input, and the tenant runs.
func TestErasuresOfNothingAreRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "s", event.Any, ofAPerson(2)...)
		absent, err := b.Store.ForTenant("absent")
		b.Must(err)
		refused := func(says string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
		stream := func(tenant kit.Tenant, stream, reason string) error {
			_, err := tenant.EraseStream(b.Ctx, stream, reason)
			return err
		}
		redact := func(positions ...int64) error {
			_, err := b.Store.RedactEvents(b.Ctx, positions, "r")
			return err
		}
		refused(`erase stream "t": redact the events: there is no such event`, stream(b.Store, "t", "r"))
		refused("the stream must not be empty", stream(b.Store, "", "r"))
		refused("the reason is empty", stream(b.Store, "s", ""))
		refused("at most 1000 bytes: 1001 bytes", stream(b.Store, "s", strings.Repeat("x", 1001)))
		refused("unknown tenant", stream(absent, "s", "r"))
		refused("position 3: there is no such event", redact(1, 3))
		refused("position 0: there is no such event", redact(0, 1))
		refused("from 1 to 10000 positions", redact())
		refused("from 1 to 10000 positions", redact(make([]int64, 10_001)...))
		mustBeUntouched(b)
		b.Idle(b.Recorders("p")...)
		b.Verify("p")
	})
}

// An alias and a key may be a person's name. An alias of a stream without events is reason enough.
func TestErasureRemovesAliasesAndKeys(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		id, err := b.Store.Alias(b.Ctx, secret)
		b.Must(err)
		other, err := b.Store.Alias(b.Ctx, "bob")
		b.Must(err)
		b.MustAppend(b.Store, id, event.Any.WithKey(secret), ofAPerson(1)...)
		b.MustAppend(b.Store, other, event.Any.WithKey("bob"), kit.SomeEvents(1)...)
		mustErase(b, b.Store, id, 1)
		again, err := b.Store.Alias(b.Ctx, secret)
		b.Must(err)
		same, err := b.Store.Alias(b.Ctx, "bob")
		b.Must(err)
		if again == id || same != other {
			t.Errorf("the aliases were %q and %q, are %q and %q", id, other, again, same)
		}
		if r := b.MustAppend(b.Store, other, event.Any.WithKey("bob"), kit.SomeEvents(1)...); !r.Repeated {
			t.Errorf("another key is gone: %+v", r)
		}
		if r := b.MustAppend(b.Store, again, event.Any.WithKey(secret), kit.SomeEvents(1)...); r.Repeated {
			t.Errorf("the key is left: %+v", r)
		}
		unused, err := b.Store.Alias(b.Ctx, "nobody")
		b.Must(err)
		mustErase(b, b.Store, unused, 0)
	})
}

// quotes is a handler that fails for the events of a stream, with an error that quotes them.
func quotes(stream string, then kit.EventFunc) kit.EventFunc {
	return func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
		if e.Stream == stream && !e.Redacted() {
			return fmt.Errorf("no row for %s", e.Body)
		}
		return then(ctx, tx, e)
	}
}

func recordEach(name string) kit.EventFunc {
	return func(ctx context.Context, tx kit.Tx, e event.Envelope) error { return tx.Record(ctx, name, e) }
}

// Errors that quote events are nowhere afterwards, and the dead letters can be replayed.
func TestErasureRemovesErrorsThatQuoteEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "other", event.Any, kit.SomeEvents(1)...)
		b.MustAppend(b.Store, "ada", event.Any, ofAPerson(2)...)
		policies := map[string]projection.Action{"parks": projection.ActionParkStream, "skips": projection.ActionSkip,
			"stops":    projection.ActionStop,
			"discards": projection.ActionPark}
		var all []millrace.Projection
		for name, action := range policies {
			all = append(all, millrace.Projection{Name: name,
				Handler: b.Store.Each(quotes("ada", recordEach(name))), OnFailure: action, Retry: kit.Soon(1)})
		}
		all = append(all, millrace.Projection{Name: "retries",
			Handler: b.Store.Each(quotes("ada", recordEach("retries"))),
			Retry:   projection.RetryPolicy{Base: time.Hour, Cap: time.Hour}})
		rt := b.Running(millrace.Config{}, all...)
		for _, name := range []string{"parks", "skips", "discards"} {
			b.Reaches(rt, name, 3)
		}
		b.Is(rt, "stops", admin.StateFailed)
		b.Is(rt, "retries", admin.StateWaiting)
		_, err := b.Store.DeadLetters(projection.ID{Name: "discards"}).Discard(b.Ctx,
			projection.DeadLetterFilter{All: true}, 10)
		b.Must(err)
		everything := func() string {
			var text strings.Builder
			encoder := json.NewEncoder(&text)
			b.Must(encoder.Encode(b.StatusOf(rt)))
			for name := range policies {
				letters, err := b.Store.DeadLetters(projection.ID{Name: name}).List(b.Ctx,
					projection.DeadLetterPage{States: []projection.DeadLetterState{
						projection.DeadLetterParked, projection.DeadLetterDiscarded}})
				b.Must(err)
				b.Must(encoder.Encode(letters))
			}
			return text.String()
		}
		if n := strings.Count(everything(), secret); n < 6 {
			t.Fatalf("the errors are quoted %d times: %s", n, everything())
		}
		erased := mustErase(b, b.Store, "ada", 2)
		if len(erased.Applied) != 1 || erased.Applied[0] != "skips" {
			t.Errorf("applied by %v: a skipped event may have been applied", erased.Applied)
		}
		b.Is(rt, "retries", admin.StateLive)
		if left := everything(); strings.Contains(left, secret) {
			t.Errorf("left: %s", left)
		}
		if r := <-b.Replaying("parks"); r.Done != 2 {
			t.Errorf("replayed %+v", r)
		}
		b.Verify("parks")
		b.Verify("retries")
	})
}

// Handlers with a Go type skip redacted events, unless they ask for them. Others get them.
func TestTypedHandlersSkipRedactedEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "ada", event.Any, ofAPerson(2)...)
		b.MustAppend(b.Store, "other", event.Any, ofAPerson(2)...)
		mustErase(b, b.Store, "ada", 2)
		for shape, h := range recordTyped[kit.Counted](b.Store) {
			b.Idle(millrace.Projection{Name: shape, Handler: h})
			if positions := b.Positions(shape); !slices.Equal(positions, []int64{3, 4}) ||
				len(b.DeadLettersOf(shape)) != 0 {
				t.Errorf("%s: applied %v", shape, positions)
			}
		}
		for shape, h := range recordTyped[kit.Counted](b.Store, event.IncludeRedacted) {
			b.Idle(millrace.Projection{Name: "all " + shape, Handler: h})
			if positions := b.Positions(shape); !slices.Equal(positions, []int64{3, 4, 1, 2, 3, 4}) {
				t.Errorf("%s with IncludeRedacted: applied %v", shape, positions)
			}
		}
		var delivered, included, each []int64
		b.Idle(
			millrace.Projection{Name: "delivers",
				Handler: millrace.DeliverOn(func(_ context.Context, e millrace.DeliveredOf[kit.Counted]) error {
					delivered = append(delivered, e.Position)
					return nil
				})},
			millrace.Projection{Name: "delivers all",
				Handler: millrace.DeliverOn(func(_ context.Context, e millrace.DeliveredOf[kit.Counted]) error {
					if e.Redacted() != (e.Body == kit.Counted{}) {
						t.Errorf("%+v", e)
					}
					included = append(included, e.Position)
					return nil
				}, event.IncludeRedacted)},
			millrace.Projection{Name: "each",
				Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
					if e.Redacted() {
						each = append(each, e.Position)
					}
					return nil
				})})
		if !slices.Equal(delivered, []int64{3, 4}) || !slices.Equal(included, []int64{1, 2, 3, 4}) ||
			!slices.Equal(each, []int64{1, 2}) {
			t.Errorf("delivered %v, and all %v; redacted for an untyped handler %v", delivered, included, each)
		}
	})
}

// The erasure names the projections whose read models may have the events.
func TestErasureNamesProjectionsThatHavePassedTheEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Idle(b.Recorders("behind")...)
		b.MustAppend(b.Store, "ada", event.Any, ofAPerson(2)...)
		all := b.Recorders("applied")
		parts := b.Recorders("parts")[0]
		parts.Partitions = 8
		all = append(all, parts,
			millrace.Projection{
				Name: "parks", Handler: b.Store.Each(quotes("ada", recordEach("parks"))), Retry: kit.Soon(1),
			},
			millrace.Projection{Name: "mails", Handler: millrace.DeliverEach(kit.Freely)})
		b.Idle(all...)
		erased := mustErase(b, b.Store, "ada", 2)
		if !slices.Equal(erased.Applied, []string{"applied", "parts"}) ||
			!slices.Equal(erased.Delivered, []string{"mails"}) ||
			!slices.Equal(erased.Types, []string{"counted"}) {
			t.Errorf("%+v", erased)
		}
		erased = mustErase(b, b.Store, "ada", 0)
		if len(erased.Applied)+len(erased.Delivered) != 0 {
			t.Errorf("nothing was redacted, but %+v", erased)
		}
	})
}

// A tenant that was paused or archived stays so, and its events are redacted.
func TestErasureLeavesPausesAndArchives(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{}, b.Recorders("p")...)
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		state := func(want tenancy.State) {
			t.Helper()
			if state, err := acme.State(b.Ctx); err != nil || state != want {
				t.Errorf("the tenant is %s, %v, want %s", state, err, want)
			}
		}
		for range 3 {
			b.MustAppend(acme, "ada", event.Any, ofAPerson(1)...)
		}
		b.ReachesOf(rt, "acme", "p", 3)
		mustErase(b, acme, "ada", 3)
		state(tenancy.Active)
		b.Must(rt.PauseTenant(b.Ctx, "acme"))
		b.MustAppend(acme, "ada", event.Any, ofAPerson(1)...)
		mustErase(b, acme, "ada", 1)
		state(tenancy.Paused)
		b.MustAppend(acme, "ada", event.Any, ofAPerson(1)...)
		b.Must(b.Store.ArchiveTenant(b.Ctx, "acme"))
		mustErase(b, acme, "ada", 1)
		state(tenancy.Archived)
		b.Must(b.Store.UnarchiveTenant(b.Ctx, "acme"))
		state(tenancy.Paused)
		b.Must(rt.ResumeTenant(b.Ctx, "acme"))
		b.ReachesOf(rt, "acme", "p", 5)

		// A tenant of the name that was dropped has no erasures.
		b.Must(b.Store.DropTenant(b.Ctx, "acme"))
		_, err = acme.EraseStream(b.Ctx, "ada", "r")
		if !errors.Is(err, tenancy.ErrUnknown) {
			t.Error(err)
		}
		_, err = b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		if all, err := acme.Erasures(b.Ctx); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// What a node has read of a stream is gone when EraseStream returns: in the window of the feed and in the buffers of
// projections that are behind. The projections of the test have not handled the events yet: they fail at the first one
// until it is erased.
func TestNoNodeHandlesWhatItReadBeforeAnErasure(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const projections = 6
		var erased, late atomic.Int64 // erased is the last position that an erasure that has returned redacted
		var all []millrace.Projection
		for i := range projections {
			name := fmt.Sprint("p", i)
			all = append(all, millrace.Projection{Name: name,
				Retry: projection.RetryPolicy{
					MaxAttempts: 1_000_000, Base: time.Millisecond, Cap: 5 * time.Millisecond,
				},
				Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
					if e.Stream == "ada" && !e.Redacted() {
						if e.Position <= erased.Load() {
							late.Add(1)
						}
						return kit.ErrOnPurpose
					}
					return tx.Record(ctx, name, e)
				})})
		}
		nodes := []*millrace.Runtime{b.Runtime(millrace.Config{}, all...), b.Another(millrace.Config{}, all...)}
		for _, rt := range nodes {
			b.Start(rt)
		}
		b.Share(nodes[0], b.Kind.Sharing(len(nodes)))
		for range 20 {
			b.MustAppend(b.Store, "other", event.Any, kit.SomeEvents(1)...)
			for _, p := range all {
				b.Reaches(nodes[0], p.Name, b.Head())
			}
			appended := b.MustAppend(b.Store, "ada", event.Any, ofAPerson(3)...)
			b.Eventually("a projection tries the events", func() bool {
				return slices.ContainsFunc(b.StatusOf(nodes[0]).Projections,
					func(p admin.ProjectionStatus) bool { return p.Attempts > 1 })
			})
			_, err := b.Store.EraseStream(b.Ctx, "ada", "request 17")
			b.Must(err)
			erased.Store(appended.Last())
			for _, p := range all {
				b.Reaches(nodes[0], p.Name, b.Head())
			}
		}
		if n := late.Load(); n > 0 {
			t.Errorf("%d events were handled as they were before", n)
		}
		for _, p := range all {
			b.Verify(p.Name)
		}
	})
}

// Erasures of one tenant at the same time, beside appends, redact everything, and the tenant runs afterwards.
func TestErasuresOfOneTenantAtTheSameTime(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const streams = 8
		for i := range streams {
			b.MustAppend(b.Store, fmt.Sprint("person", i), event.Any, ofAPerson(3)...)
		}
		rt := b.Running(millrace.Config{}, b.Recorders("p")...)
		stores := []kit.Store{b.Store, b.Again()}
		stop := b.AppendThrough(2)
		b.Must(kit.Together(streams, func(i int) error {
			_, err := stores[i%2].EraseStream(b.Ctx, fmt.Sprint("person", i), "request 17")
			return err
		}))
		stop()
		b.Reaches(rt, "p", b.Head())
		b.Verify("p")
		for _, e := range b.All(b.Store) {
			if redacted := strings.HasPrefix(e.Stream, "person"); e.Redacted() != redacted {
				t.Errorf("%+v", e)
			}
		}
		if state, err := b.Store.State(b.Ctx); err != nil || state != tenancy.Active {
			t.Errorf("the tenant is %s, %v", state, err)
		}
	})
}

// A handler cannot wait for its own end. It may erase in other tenants.
func TestHandlerCannotEraseInItsTenant(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		b.MustAppend(acme, "ada", event.Any, ofAPerson(1)...)
		b.MustAppend(b.Store, "ada", event.Any, ofAPerson(1)...)
		var own, other error
		p := millrace.Projection{Name: "p", Timeout: 30 * time.Second,
			Handler: millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
				_, own = b.Store.EraseStream(ctx, "ada", "r")
				_, other = acme.EraseStream(ctx, "ada", "r")
				return nil
			})}
		p.Tenants = []string{projection.DefaultTenant}
		b.Idle(p)
		if own == nil || !strings.Contains(own.Error(), "would wait for its own end") || other != nil {
			t.Errorf("%v, %v", own, other)
		}
		mustBeUntouched(b)
	})
}

// An append to the stream that is in progress is waited for, and redacted.
func TestErasureWaitsForAppendsInProgress(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "ada", event.Any, ofAPerson(1)...)
		began, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
				_, err := b.Store.AppendTx(ctx, tx, "ada", event.Any, ofAPerson(1)...)
				close(began)
				kit.Pass(ctx, 300*time.Millisecond)
				return err
			})
		}()
		<-began
		mustErase(b, b.Store, "ada", 2)
		b.Must(<-done)
	})
}
