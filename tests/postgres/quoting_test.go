package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// TestErrorsCutWhatTheyQuote gives a megabyte to every public function that takes a text, and reads the errors.
func TestErrorsCutWhatTheyQuote(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	big := strings.Repeat("é", 1<<19)
	nul := big + "\x00"
	cancelled, cancel := context.WithCancel(b.ctx)
	cancel()
	rt := b.runtime(millrace.Config{})
	add := func(stream string, expected event.Expected, e event.Event) error {
		if e.Type == "" {
			e.Type = "counted"
		}
		_, err := b.store.Append(b.ctx, stream, expected, e)
		return err
	}
	first := func(stream string, opts *pgstore.ReadOptions, ctx context.Context) (err error) {
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
		_, err := pgstore.OpenPool(b.ctx, b.store.Pool(), opts)
		return err
	}
	_, forTenant := b.store.ForTenant(big)
	_, createTenant := b.store.CreateTenant(b.ctx, big)
	_, tenantSQL := pgstore.TenantMigrations("", big, 0)
	_, config := millrace.New(millrace.Config{Store: b.store, Tenants: []string{big}})
	encode := event.Untyped(big, func() {}).Validate()
	longKey := strings.Repeat("k", 200)
	if err := add("keyed", event.Any.WithKey(longKey), event.Event{}); err != nil {
		t.Fatal(err)
	}
	id := millrace.ProjectionID{Tenant: big, Name: big}
	letters := b.store.DeadLetters(id)
	_, list := letters.List(b.ctx, projection.DeadLetterPage{})
	_, count := letters.Count(b.ctx, projection.DeadLetterFilter{Stream: nul})
	_, replay := letters.Replay(b.ctx, projection.DeadLetterFilter{All: true}, 1)
	_, state := b.store.DeadLetters(millrace.ProjectionID{Name: "p"}).List(b.ctx, projection.DeadLetterPage{States: []projection.DeadLetterState{projection.DeadLetterState(big)}})
	p := millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))}
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
		"stream":                  {add(big, event.Any, event.Event{}), []string{"stream", "1048576 bytes", "at most"}},
		"stream, NUL":             {first(nul, nil, b.ctx), []string{"stream", "NUL"}},
		"stream, cancelled":       {first(big, nil, cancelled), []string{"stream", "canceled"}},
		"read all, stream":        {first("", &pgstore.ReadOptions{Stream: nul}, b.ctx), []string{"stream", "NUL"}},
		"read all, type":          {first("", &pgstore.ReadOptions{Types: []string{nul}}, b.ctx), []string{"type", "NUL"}},
		"key":                     {add("s", event.Any.WithKey(big), event.Event{}), []string{"idempotency key", "1048576 bytes", "at most"}},
		"key, used":               {add("other", event.Any.WithKey(longKey), event.Event{}), []string{"key", "used"}},
		"type":                    {add("s", event.Any, event.Event{Type: nul}), []string{"event type", "NUL"}},
		"type, no JSON":           {encode, []string{"event"}},
		"type, decode":            {event.Envelope{Type: big, Body: []byte("{")}.Decode(new(int)), []string{"decode"}},
		"causation":               {add("s", event.Any, event.Event{CausationID: nul}), []string{"causation id", "NUL"}},
		"correlation":             {add("s", event.Any, event.Event{CorrelationID: big + "\xff"}), []string{"correlation id", "UTF-8"}},
		"header name":             {add("s", event.Any, event.Event{Headers: map[string]string{nul: ""}}), []string{"header name", "NUL"}},
		"header value":            {add("s", event.Any, event.Event{Headers: map[string]string{big: nul}}), []string{"header", "NUL"}},
		"version conflict":        {versions, []string{"version conflict", "stream"}},
		"for tenant":              {forTenant, []string{"tenant", "at most 32 bytes"}},
		"create tenant":           {createTenant, []string{"tenant", "at most 32 bytes"}},
		"tenant, as SQL":          {tenantSQL, []string{"tenant", "at most 32 bytes"}},
		"Config.Tenants":          {config, []string{"Config.Tenants", "at most 32 bytes"}},
		"Options.Schema":          {open(pgstore.Options{Schema: big}), []string{"Options.Schema", "at most 30 bytes"}},
		"Projection.Name":         {rt.Register(named), []string{"Projection.Name", "at most 100 bytes"}},
		"Projection.Types":        {rt.Register(types), []string{"Types", "NUL"}},
		"Projection.Replay.Error": {rt.Register(replayed), []string{"Replay.Error", "NUL"}},
		"pause":                   {rt.Pause(b.ctx, id), []string{"unknown tenant"}},
		"wait":                    {rt.WaitFor(b.ctx, id, 1), []string{"unknown"}},
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

func TestLogsCutTheErrorsOfHandlers(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	core, logs := observer.New(zapcore.DebugLevel)
	b.append("a", 1)
	logger := zap.New(core, zap.AddCaller()).With(zap.NamedError("with", errors.New(strings.Repeat("é", 1<<19))))
	rt := b.runtime(millrace.Config{Logger: logger}, millrace.Projection{Name: "p", Retry: soon(1), Handler: pgstore.Batch(func(context.Context, pgx.Tx, []event.Envelope) error {
		return errors.New("the reason: " + strings.Repeat("é", 1<<19))
	})})
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	reasons := 0
	for _, entry := range logs.All() {
		if entry.Message == "event failed" && !entry.Caller.Defined {
			t.Error("the caller is lost")
		}
		for name, value := range entry.ContextMap() {
			text, ok := value.(string)
			if ok && name != "with" && strings.Contains(text, "the reason: ") {
				reasons++
			}
			if ok && name != "with" && len(text) > 2048 {
				t.Errorf("%s: %s has %d bytes", entry.Message, name, len(text))
			}
		}
	}
	if reasons == 0 {
		t.Error("no entry says why the event failed")
	}
}
