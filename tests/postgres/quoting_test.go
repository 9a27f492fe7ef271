package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// TestErrorsShortenLongValues gives a megabyte to every public function that takes a text, and reads the errors.
func TestErrorsShortenLongValues(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	big := strings.Repeat("é", 1<<19)
	nul := big + "\x00"
	cancelled, cancel := context.WithCancel(b.Ctx)
	cancel()
	rt := b.Runtime(millrace.Config{})
	add := func(stream string, expected event.Expected, e event.Event) error {
		if e.Type == "" {
			e.Type = "counted"
		}
		_, err := b.store.Append(b.Ctx, stream, expected, e)
		return err
	}
	first := func(stream string, opts *event.ReadOptions, ctx context.Context) (err error) {
		events := b.store.ReadStream(ctx, stream, 1)
		if opts != nil {
			events = b.store.ReadAll(ctx, *opts)
		}
		for _, err := range events {
			return err
		}
		return nil
	}
	open := func(opts pgstore.Options) error {
		_, err := pgstore.OpenPool(b.Ctx, b.store.Pool(), opts)
		return err
	}
	_, forTenant := b.store.ForTenant(big)
	_, createTenant := b.store.CreateTenant(b.Ctx, big)
	_, tenantSQL := pgstore.TenantMigrations("", big, 0)
	_, config := millrace.New(millrace.Config{Store: b.store, Tenants: []string{big}})
	encode := event.Untyped(big, func() {}).Validate()
	longKey := strings.Repeat("k", 200)
	b.Must(add("keyed", event.Any.WithKey(longKey), event.Event{}))
	id := millrace.ProjectionID{Tenant: big, Name: big}
	letters := b.Store.DeadLetters(id)
	_, list := letters.List(b.Ctx, projection.DeadLetterPage{})
	_, count := letters.Count(b.Ctx, projection.DeadLetterFilter{Stream: nul})
	_, replay := letters.Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 1)
	_, state := b.Store.DeadLetters(millrace.ProjectionID{Name: "p"}).List(b.Ctx,
		projection.DeadLetterPage{States: []projection.DeadLetterState{projection.DeadLetterState(big)}})
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))}
	named, types, replayed := p, p, p
	named.Name, types.Types, replayed.Replay.Error = big, []string{nul}, nul
	conflict := add("keyed", event.NoStream, event.Event{})
	var versions *event.VersionConflictError
	if !errors.As(conflict, &versions) {
		t.Fatal(conflict)
	}
	versions.Stream = big

	for what, c := range map[string]struct {
		err   error
		names []string
	}{
		"stream":            {add(big, event.Any, event.Event{}), []string{"stream", "1048576 bytes", "at most"}},
		"stream, NUL":       {first(nul, nil, b.Ctx), []string{"stream", "NUL"}},
		"stream, cancelled": {first(big, nil, cancelled), []string{"stream", "canceled"}},
		"read all, stream":  {first("", &event.ReadOptions{Stream: nul}, b.Ctx), []string{"stream", "NUL"}},
		"read all, type": {
			first("", &event.ReadOptions{Types: []string{nul}}, b.Ctx), []string{"type", "NUL"},
		},
		"key": {
			add("s", event.Any.WithKey(big), event.Event{}), []string{"idempotency key", "1048576 bytes", "at most"},
		},
		"key, used":     {add("other", event.Any.WithKey(longKey), event.Event{}), []string{"key", "used"}},
		"type":          {add("s", event.Any, event.Event{Type: nul}), []string{"event type", "NUL"}},
		"type, no JSON": {encode, []string{"event"}},
		"type, decode":  {event.Envelope{Type: big, Body: []byte("{")}.Decode(new(int)), []string{"decode"}},
		"causation": {
			add("s", event.Any, event.Event{CausationID: nul}), []string{"causation id", "NUL"},
		},
		"correlation": {
			add("s", event.Any, event.Event{CorrelationID: big + "\xff"}), []string{"correlation id", "UTF-8"},
		},
		"header name": {
			add("s", event.Any, event.Event{Headers: map[string]string{nul: ""}}), []string{"header name", "NUL"},
		},
		"header value": {
			add("s", event.Any, event.Event{Headers: map[string]string{big: nul}}), []string{"header", "NUL"},
		},
		"version conflict":        {versions, []string{"version conflict", "stream"}},
		"for tenant":              {forTenant, []string{"tenant", "at most 200 bytes"}},
		"create tenant":           {createTenant, []string{"tenant", "at most 200 bytes"}},
		"tenant, as SQL":          {tenantSQL, []string{"tenant", "at most 200 bytes"}},
		"Config.Tenants":          {config, []string{"Config.Tenants", "at most 200 bytes"}},
		"Options.Schema":          {open(pgstore.Options{Schema: big}), []string{"Options.Schema", "at most 30 bytes"}},
		"Projection.Name":         {rt.Register(named), []string{"Projection.Name", "at most 100 bytes"}},
		"Projection.Types":        {rt.Register(types), []string{"Types", "NUL"}},
		"Projection.Replay.Error": {rt.Register(replayed), []string{"Replay.Error", "NUL"}},
		"pause":                   {rt.Pause(b.Ctx, id), []string{"unknown tenant"}},
		"wait":                    {rt.WaitFor(b.Ctx, id, 1), []string{"unknown"}},
		"dead letters of":         {list, []string{"dead letters", "unknown tenant"}},
		"dead letters, filter":    {count, []string{"Stream", "NUL"}},
		"dead letters, replay":    {replay, []string{"dead letters", "unknown tenant"}},
		"dead letters, state":     {state, []string{"unknown state"}},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", what)
			continue
		}
		text := c.err.Error()
		if len(text) >= 1024 {
			t.Errorf("%s: %d bytes: %.200s", what, len(text), text)
		}
		for _, name := range c.names {
			if !strings.Contains(text, name) {
				t.Errorf("%s: %q is not in %.500s", what, name, text)
			}
		}
	}
}
