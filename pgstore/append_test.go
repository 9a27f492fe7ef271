package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

func TestPositionsRiseWithVersionsInALargeAppend(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const n = 5000
	result := mustAppend(t, store.tenant, "s", event.Any, someEvents(n)...)
	if len(result.Positions) != n || !slices.IsSorted(result.Positions) || result.Version != n {
		t.Fatalf("%d positions, sorted %v, version %d", len(result.Positions), slices.IsSorted(result.Positions), result.Version)
	}
	for i, e := range collect(t, store.ReadAll(testContext(t), ReadOptions{})) {
		if e.Position != result.Positions[i] || e.Version != int64(i+1) || string(e.Body) != fmt.Sprint(i) {
			t.Fatalf("event %d is at position %d, version %d, body %s", i, e.Position, e.Version, e.Body)
		}
	}
}

func TestPositionsRiseWithVersionsUnderConcurrentWriters(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	const writers, appends, streams = 16, 40, 4
	noError(t, together(writers, func(w int) error {
		for i := range appends {
			events := someEvents(1 + (w+i)%3)
			expected := event.Any
			if i%2 == 1 {
				expected = expected.WithKey(fmt.Sprintf("%d-%d", w, i))
			}
			result, err := store.Append(ctx, fmt.Sprintf("s%d", i%streams), expected, events...)
			if err != nil {
				return err
			}
			if len(result.Positions) != len(events) || !slices.IsSorted(result.Positions) {
				return fmt.Errorf("positions %v of %d events", result.Positions, len(events))
			}
		}
		return nil
	}))
	for s := range streams {
		stream := fmt.Sprintf("s%d", s)
		var last event.Envelope
		for _, e := range collect(t, store.ReadStream(ctx, stream, 1)) {
			if e.Version != last.Version+1 || e.Position <= last.Position {
				t.Fatalf("%s: version %d at position %d follows version %d at position %d", stream, e.Version, e.Position, last.Version, last.Position)
			}
			last = e
		}
		if version := one[int64](t, store, "select version from millrace_default.streams where stream_id = $1", stream); version != last.Version {
			t.Errorf("%s is at version %d, its last event has %d", stream, version, last.Version)
		}
	}
}

func TestOneOfManyAppendsWithTheSameExpectedVersionSucceeds(t *testing.T) {
	t.Parallel()
	for _, expected := range []event.Expected{event.NoStream, event.Exact(3)} {
		t.Run(expected.String(), func(t *testing.T) {
			store := newStore(t)
			ctx := testContext(t)
			version, _ := expected.Version()
			if version > 0 {
				mustAppend(t, store.tenant, "s", event.Any, someEvents(int(version))...)
			}
			won := make([]bool, 16)
			noError(t, together(len(won), func(i int) error {
				_, err := store.Append(ctx, "s", expected, someEvents(2)...)
				won[i] = err == nil
				if errors.Is(err, event.ErrVersionConflict) {
					return nil
				}
				return err
			}))
			won = slices.DeleteFunc(won, func(w bool) bool { return !w })
			if len(won) != 1 || countEvents(t, store.tenant) != int(version)+2 {
				t.Errorf("%d won, %d events", len(won), countEvents(t, store.tenant))
			}
			if drawn := lastDrawn(t, store.tenant); drawn != version+2 {
				t.Errorf("position %d was drawn, the losers must draw none", drawn)
			}
		})
	}
}

func TestConflictSaysWhatWasExpectedAndFound(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	mustAppend(t, store.tenant, "three", event.Any, someEvents(3)...)
	drawn := lastDrawn(t, store.tenant)
	for _, c := range []struct {
		stream   string
		expected event.Expected
		actual   int64
	}{
		{"three", event.Exact(2), 3}, {"three", event.Exact(4), 3}, {"three", event.NoStream, 3}, {"three", event.Exact(0), 3},
		{"missing", event.Exact(1), 0}, {"three", event.Exact(1).WithKey("k"), 3}, {"three", event.NoStream.WithKey("k"), 3},
	} {
		_, err := store.Append(ctx, c.stream, c.expected, someEvents(2)...)
		var conflict *event.VersionConflictError
		if !errors.Is(err, event.ErrVersionConflict) || !errors.As(err, &conflict) {
			t.Errorf("%s, %v: %v", c.stream, c.expected, err)
			continue
		}
		if conflict.Stream != c.stream || conflict.Expected != c.expected || conflict.Actual != c.actual {
			t.Errorf("%s, %v: %+v", c.stream, c.expected, conflict)
		}
	}
	if now := lastDrawn(t, store.tenant); now != drawn {
		t.Errorf("conflicts drew positions %d to %d", drawn+1, now)
	}
	if n := one[int](t, store, "select count(*) from millrace_default.append_keys"); n != 0 {
		t.Errorf("%d keys are claimed by appends that met a conflict", n)
	}
	if _, err := store.Append(ctx, "missing", event.Exact(1), someEvents(1)...); !strings.Contains(err.Error(), `"missing" is at version 0, expected version 1`) {
		t.Errorf("the message is %q", err)
	}
}

func TestEventsAreReadAsTheyWereAppended(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	want := event.Event{Type: "Größe", Body: json.RawMessage(`{"a": [1.50, "ü\"\\\n"], "n": null}`),
		Headers: map[string]string{"quote\"": `{\"`, "empty": ""}, CausationID: "c{1}", CorrelationID: `\,"`}
	mustAppend(t, store.tenant, "s", event.Any, want, event.Event{Type: "Bare"})
	got := collect(t, store.ReadStream(testContext(t), "s", 1))
	if len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
	e := got[0]
	if e.Type != want.Type || e.CausationID != want.CausationID || e.CorrelationID != want.CorrelationID || string(e.Body) != string(want.Body) {
		t.Errorf("got %+v", e)
	}
	if h := e.Headers(); len(h) != 2 || h["quote\""] != want.Headers["quote\""] {
		t.Errorf("headers %v", h)
	}
	if bare := got[1]; string(bare.Body) != "null" || bare.RawHeaders != nil || bare.CausationID != "" || bare.Time.IsZero() {
		t.Errorf("got %+v", bare)
	}
	nulls := "select count(*) from millrace_default.events where headers is null and causation_id is null and correlation_id is null"
	if n := one[int](t, store, nulls); n != 1 {
		t.Errorf("%d events without headers and ids, want 1", n)
	}
}

func TestBadInputIsRefusedByNameBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	good := event.Event{Type: "T"}
	body := func(b string) event.Event { return event.Event{Type: "T", Body: json.RawMessage(b)} }
	for name, c := range map[string]struct {
		stream   string
		expected event.Expected
		events   []event.Event
		want     string
	}{
		"no events":         {"s", event.Any, nil, "events must not be empty"},
		"no stream":         {"", event.Any, []event.Event{good}, "stream's id must not be empty"},
		"long stream":       {strings.Repeat("x", 501), event.Any, []event.Event{good}, "501 bytes"},
		"stream not UTF-8":  {"s\xff", event.Any, []event.Event{good}, "not valid UTF-8"},
		"stream with NUL":   {"s\x00", event.Any, []event.Event{good}, "NUL"},
		"empty key":         {"s", event.Any.WithKey(""), []event.Event{good}, "key must not be empty"},
		"long key":          {"s", event.Any.WithKey(strings.Repeat("k", 201)), []event.Event{good}, "201 bytes"},
		"key not UTF-8":     {"s", event.Any.WithKey("\xff"), []event.Event{good}, "idempotency key"},
		"negative version":  {"s", event.Exact(-1), []event.Event{good}, "must not be negative: -1"},
		"second has a NUL":  {"s", event.Any, []event.Event{good, body(`{"a":"\u0000"}`)}, `event 1: event body contains \u0000`},
		"body not JSON":     {"s", event.Any, []event.Event{body(`{"a":`)}, "event 0: event body is not one valid JSON value"},
		"two bodies":        {"s", event.Any, []event.Event{body(`1 2`)}, "event 0"},
		"body not UTF-8":    {"s", event.Any, []event.Event{body("\"\xff\"")}, "event 0: event body is not valid UTF-8"},
		"half a surrogate":  {"s", event.Any, []event.Event{body(`"\ud800"`)}, "surrogate"},
		"type missing":      {"s", event.Any, []event.Event{{}}, "event 0: event type is empty"},
		"header with a NUL": {"s", event.Any, []event.Event{{Type: "T", Headers: map[string]string{"h": "\x00"}}}, "header h"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := store.Append(testContext(t), c.stream, c.expected, c.events...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if drawn := lastDrawn(t, store.tenant); drawn != 0 {
		t.Errorf("%d positions were drawn", drawn)
	}
	mustAppend(t, store.tenant, strings.Repeat("x", 500), event.Any.WithKey(strings.Repeat("k", 200)), body(`"\ud83d\ude00 \\u0000"`))
}

func TestValueThatOnlyTheServerRefusesLeavesNothing(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	_, err := store.Append(testContext(t), "s", event.Any, event.Event{Type: "T"}, event.Event{Type: "T", Body: json.RawMessage(`1e200000`)})
	if !pgerr.Is(err, "22003") {
		t.Errorf("error %v, want numeric_value_out_of_range", err)
	}
	if n := countEvents(t, store.tenant); n != 0 {
		t.Errorf("%d events", n)
	}
	if r := mustAppend(t, store.tenant, "s", event.NoStream, someEvents(1)...); r.Version != 1 {
		t.Errorf("version %d", r.Version)
	}
}

func TestAppendWakesItsTenantOnlyIfItAppended(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	wakes := wakeCount(t, store)
	mustAppend(t, store.tenant, "s", event.Any.WithKey("k"), someEvents(1)...)
	if wakes("default") != 1 {
		t.Fatalf("%d wakes after an append", wakes("default"))
	}
	mustAppend(t, store.tenant, "s", event.Any.WithKey("k"), someEvents(1)...)
	if _, err := store.Append(testContext(t), "s", event.NoStream, someEvents(1)...); !errors.Is(err, event.ErrVersionConflict) {
		t.Fatal(err)
	}
	if wakes("default") != 1 {
		t.Errorf("%d wakes after a repeat and a conflict too", wakes("default"))
	}
}

func TestStatementCacheDoesNotGrowWithTenants(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	cached := func(schema string) int {
		return one[int](t, store, "select count(*) from pg_prepared_statements where strpos(statement, $1) > 0", sqltext.Name(schema))
	}
	for i := range 3 * preparedTenants {
		tenant := newTenant(t, store, fmt.Sprint(i))
		for range 2 { // from the first success on it is known that there is such a tenant
			mustAppend(t, tenant, "s", event.Any, someEvents(1)...)
		}
		collect(t, tenant.ReadStream(testContext(t), "s", 1))
		// The default tenant came first.
		if want := i+1 < preparedTenants; cached(tenant.schema) > 1 || cached(tenant.schema) > 0 != want {
			t.Errorf("tenant %d: %d statements are cached", i, cached(tenant.schema))
		}
	}
}

func TestAppendTxIsVisibleAndWakesAfterTheCommit(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	wakes := wakeCount(t, store)
	tx := must(store.pool.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	result, wake, err := store.AppendTx(ctx, tx, "s", event.NoStream, someEvents(2)...)
	if err != nil || result.Version != 2 || len(result.Positions) != 2 {
		t.Fatalf("%+v, %v", result, err)
	}
	if countEvents(t, store.tenant) != 0 || wakes("default") != 0 {
		t.Error("events are visible, or announced, before the commit")
	}
	noError(t, tx.Commit(ctx))
	wake()
	if countEvents(t, store.tenant) != 2 || wakes("default") != 1 {
		t.Errorf("%d events, %d wakes", countEvents(t, store.tenant), wakes("default"))
	}
}

func TestInTxCommitsAndWakesEveryTenantAppendedTo(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	a, b, c := newTenant(t, store, "a"), newTenant(t, store, "b"), newTenant(t, store, "c")
	wakes := wakeCount(t, store)
	noError(t, store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
		if _, _, err := a.AppendTx(ctx, tx, "s", event.Any, someEvents(1)...); err != nil {
			return err
		}
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, _, err := b.AppendTx(ctx, savepoint, "s", event.Any, someEvents(1)...); err != nil {
			return err
		}
		if err := savepoint.Commit(ctx); err != nil {
			return err
		}
		_, _, err = c.AppendTx(ctx, tx, "s", event.Exact(1), someEvents(1)...)
		if !errors.Is(err, event.ErrVersionConflict) {
			return err
		}
		if wakes("a")+wakes("b") != 0 {
			t.Error("woken before the commit")
		}
		return nil
	}))
	if wakes("a") != 1 || wakes("b") != 1 || wakes("c") != 0 || wakes("default") != 0 {
		t.Errorf("wakes: a %d, b %d, c %d, default %d", wakes("a"), wakes("b"), wakes("c"), wakes("default"))
	}
	if countEvents(t, a) != 1 || countEvents(t, b) != 1 || countEvents(t, c) != 0 {
		t.Error("not what was appended")
	}
}

func TestInTxThatFailsLeavesNothingAndWakesNoProjection(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, fail := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"error": func(context.Context, pgx.Tx) error { return boom },
		"panic": func(context.Context, pgx.Tx) error { panic(boom) },
		"statement that failed and was passed over": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "select 1/0")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			wakes := wakeCount(t, store)
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = p.(error)
					}
				}()
				return store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
					if _, _, err := store.AppendTx(ctx, tx, "s", event.Any.WithKey("k"), someEvents(3)...); err != nil {
						return err
					}
					return fail(ctx, tx)
				})
			}()
			if err == nil || name != "statement that failed and was passed over" && !errors.Is(err, boom) {
				t.Errorf("error %v", err)
			}
			if n := countEvents(t, store.tenant); n != 0 {
				t.Errorf("%d events", n)
			}
			if wakes("default") != 0 {
				t.Errorf("%d wakes", wakes("default"))
			}
			if acquired := store.pool.Stat().AcquiredConns(); acquired != 0 {
				t.Errorf("%d connections are not given back", acquired)
			}
			if r := mustAppend(t, store.tenant, "s", event.NoStream.WithKey("k"), someEvents(1)...); r.Repeated {
				t.Error("the key is claimed")
			}
		})
	}
}

func TestAppendTxMakesTheCommitSynchronousAgain(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	setting := func(tx pgx.Tx) (s string) {
		t.Helper()
		noError(t, tx.QueryRow(ctx, "show synchronous_commit").Scan(&s))
		return s
	}
	for _, c := range []struct {
		before   string
		expected event.Expected
		want     string
	}{
		{"off", event.Any, "on"}, {"off", event.NoStream.WithKey("keyed"), "on"}, {"local", event.Any, "local"}, {"remote_apply", event.Any, "remote_apply"},
	} {
		noError(t, store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local synchronous_commit = "+c.before); err != nil {
				return err
			}
			key, _ := c.expected.Key()
			stream := strings.Join([]string{c.before, key}, "-")
			if _, _, err := store.AppendTx(ctx, tx, stream, c.expected, someEvents(1)...); err != nil {
				return err
			}
			if got := setting(tx); got != c.want {
				t.Errorf("synchronous_commit was %s and is %s after an append, want %s", c.before, got, c.want)
			}
			return nil
		}))
	}
	// Control: a transaction that appends nothing stays as it was set.
	noError(t, store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return err
		}
		if _, _, err := store.AppendTx(ctx, tx, "s", event.Exact(7), someEvents(1)...); !errors.Is(err, event.ErrVersionConflict) {
			return err
		}
		if got := setting(tx); got != "off" {
			t.Errorf("synchronous_commit is %s though nothing was appended", got)
		}
		return nil
	}))
}
