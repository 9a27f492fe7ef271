package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

func TestPositionsRiseWithVersionsAndHaveNoGaps(t *testing.T) {
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
	for i, e := range all(t, store.tenant) {
		if e.Position != int64(i+1) {
			t.Fatalf("event %d is at position %d", i+1, e.Position)
		}
	}
	for s := range streams {
		stream := fmt.Sprintf("s%d", s)
		var last event.Envelope
		for _, e := range collect(t, store.ReadStream(ctx, stream, 1)) {
			if e.Version != last.Version+1 || e.Position <= last.Position {
				t.Fatalf("%s: version %d at position %d follows version %d at position %d", stream, e.Version, e.Position, last.Version, last.Position)
			}
			last = e
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
			if events := all(t, store.tenant); len(won) != 1 || len(events) != int(version)+2 {
				t.Errorf("%d won, %d events", len(won), len(events))
			}
		})
	}
}

func TestConflictSaysWhatWasExpectedAndFound(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	mustAppend(t, store.tenant, "three", event.Any, someEvents(3)...)
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
	if n := one[int](t, store, "select count(*) from millrace_append_keys"); n != 0 {
		t.Errorf("%d keys are claimed by appends that met a conflict", n)
	}
	if _, err := store.Append(ctx, "missing", event.Exact(1), someEvents(1)...); !strings.HasPrefix(err.Error(), `append to "missing": version conflict: stream "missing" is at version 0, expected version 1`) {
		t.Errorf("the message is %q", err)
	}
	if r := mustAppend(t, store.tenant, "missing", event.NoStream, someEvents(1)...); r.Version != 1 || r.Positions[0] != 4 {
		t.Errorf("%+v", r)
	}
}

func TestRepeatReturnsTheFirstResult(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(2)...)
	first := mustAppend(t, store.tenant, "s", event.Exact(2).WithKey("k"), someEvents(3)...)
	mustAppend(t, store.tenant, "other", event.Any, someEvents(1)...)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	want := first
	want.Repeated = true
	// The stream has a later version by now: the repeat wins over the conflict, whatever version and events it is given.
	for _, expected := range []event.Expected{event.Exact(2), event.Any, event.NoStream} {
		if got := mustAppend(t, store.tenant, "s", expected.WithKey("k"), someEvents(3)...); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %+v, want %+v", expected, got, want)
		}
	}
	if n := len(all(t, store.tenant)); n != 7 {
		t.Errorf("%d events", n)
	}
	// Another tenant has keys of its own.
	if r := mustAppend(t, newTenant(t, store, "b"), "s", event.Any.WithKey("k"), someEvents(1)...); r.Repeated || r.Positions[0] != 1 {
		t.Errorf("another tenant: %+v", r)
	}
}

func TestKeyBelongsToOneStream(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any.WithKey("k"), someEvents(1)...)
	_, err := store.Append(testContext(t), "other", event.Any.WithKey("k"), someEvents(1)...)
	if !errors.Is(err, event.ErrKeyReused) || !strings.Contains(err.Error(), `key "k" was used for stream "s"`) {
		t.Errorf("error %v", err)
	}
	if n := len(all(t, store.tenant)); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestConcurrentRepeatsAppendOnce(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	const callers, keys, events = 8, 20, 10
	for k := range keys {
		results := make([]event.Appended, callers)
		noError(t, together(callers, func(i int) error {
			// Half of them expect a version that is true only for the first.
			expected := []event.Expected{event.Any, event.Exact(int64(k * events))}[i%2]
			result, err := store.Append(ctx, "s", expected.WithKey(fmt.Sprint(k)), someEvents(events)...)
			results[i] = result
			return err
		}))
		appended := 0
		for i := range results {
			if !results[i].Repeated {
				appended++
			}
			results[i].Repeated = false
			if len(results[i].Positions) != events || !reflect.DeepEqual(results[i], results[0]) {
				t.Fatalf("key %d: results %+v and %+v", k, results[i], results[0])
			}
		}
		if appended != 1 {
			t.Fatalf("key %d: %d callers appended", k, appended)
		}
	}
	if n := len(all(t, store.tenant)); n != keys*events {
		t.Errorf("%d events, want %d", n, keys*events)
	}
}

func TestKeyedAppendsDeleteExpiredKeys(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	keyed := func(format string, from, to int) {
		for i := from; i < to; i++ {
			mustAppend(t, store.tenant, "s", event.Any.WithKey(fmt.Sprintf(format, i)), someEvents(1)...)
		}
	}
	age := func(by time.Duration) {
		mustExec(t, store, "update millrace_append_keys set created_at = created_at - ?", by.Microseconds())
	}
	count := func() int { return one[int](t, store, "select count(*) from millrace_append_keys") }
	const old = 100
	keyed("old %d", 0, old)
	age(defaultKeyRetention - time.Minute)
	keyed("new %d", 0, old)
	if n := count(); n != 2*old {
		t.Fatalf("keys were deleted before their time: %d are left", n)
	}
	age(time.Hour)
	for i := 0; count() != old+i; i++ {
		if i > 100*expireEvery {
			t.Fatalf("after %d more appends with keys %d are left", i, count())
		}
		keyed("newest %d", i, i+1)
	}
	if got := mustAppend(t, store.tenant, "s", event.Any.WithKey("new 7"), someEvents(1)...); !got.Repeated {
		t.Error("a key that is not old was deleted")
	}
	if got := mustAppend(t, store.tenant, "s", event.Any.WithKey("old 7"), someEvents(1)...); got.Repeated {
		t.Error("a key that was deleted is a repeat")
	}
}

func TestKeysAreKeptForEverIfRequested(t *testing.T) {
	t.Parallel()
	store := migrated(t, openStore(t, newPath(t), Options{KeyRetention: -1, Synchronous: SynchronousNormal}))
	for i := range 10 * expireEvery {
		mustAppend(t, store.tenant, "s", event.Any.WithKey(fmt.Sprint(i)), someEvents(1)...)
		mustExec(t, store, "update millrace_append_keys set created_at = 0")
	}
	if n := one[int](t, store, "select count(*) from millrace_append_keys"); n != 10*expireEvery {
		t.Errorf("%d keys are left", n)
	}
}

func TestEventsAreReadAsTheyWereAppended(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	want := event.Event{Type: "Größe", Body: json.RawMessage(`{"a": [1.50, "ü\"\\\n"], "n": null}`),
		Headers: map[string]string{"quote\"": `{\"`, "empty": ""}, CausationID: "c{1}", CorrelationID: `\,"`}
	before := time.Now().Add(-time.Second)
	mustAppend(t, store.tenant, "s", event.Any, want, event.Event{Type: "Bare"})
	got := collect(t, store.ReadStream(testContext(t), "s", 1))
	if len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
	e := got[0]
	if e.Type != want.Type || e.CausationID != want.CausationID || e.CorrelationID != want.CorrelationID || string(e.Body) != string(want.Body) {
		t.Errorf("got %+v", e)
	}
	if e.Time.Before(before) || e.Time.After(time.Now().Add(time.Second)) {
		t.Errorf("time %v", e.Time)
	}
	if h := e.Headers(); len(h) != 2 || h["quote\""] != want.Headers["quote\""] {
		t.Errorf("headers %v", h)
	}
	if bare := got[1]; string(bare.Body) != "null" || bare.RawHeaders != nil || bare.CausationID != "" {
		t.Errorf("got %+v", bare)
	}
	nulls := "select count(*) from millrace_events where headers is null and causation_id is null and correlation_id is null"
	if n := one[int](t, store, nulls); n != 1 {
		t.Errorf("%d events without headers and ids, want 1", n)
	}
	if slot := one[int32](t, store, "select slot from millrace_events where position = 1"); slot != partition.Slot("s") {
		t.Errorf("slot %d, want %d", slot, partition.Slot("s"))
	}
}

func TestBadInputIsRefusedByNameBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	good := event.Event{Type: "T"}
	for name, c := range map[string]struct {
		stream   string
		expected event.Expected
		events   []event.Event
		want     string
	}{
		"no events":        {"s", event.Any, nil, "events must not be empty"},
		"no stream":        {"", event.Any, []event.Event{good}, "stream's id must not be empty"},
		"long stream":      {strings.Repeat("x", 501), event.Any, []event.Event{good}, "501 bytes"},
		"stream not UTF-8": {"s\xff", event.Any, []event.Event{good}, "not valid UTF-8"},
		"empty key":        {"s", event.Any.WithKey(""), []event.Event{good}, "key must not be empty"},
		"negative version": {"s", event.Exact(-1), []event.Event{good}, "must not be negative: -1"},
		"second has a NUL": {"s", event.Any, []event.Event{good, {Type: "T", Body: []byte(`{"a":"\u0000"}`)}}, `event 1: event body contains \u0000`},
		"body not JSON":    {"s", event.Any, []event.Event{{Type: "T", Body: []byte(`{"a":`)}}, "event 0: event body is not one valid JSON value"},
		"type missing":     {"s", event.Any, []event.Event{{}}, "event 0: event type is empty"},
	} {
		_, err := store.Append(testContext(t), c.stream, c.expected, c.events...)
		if err == nil || !strings.HasPrefix(err.Error(), "append to ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
	if r := mustAppend(t, store.tenant, strings.Repeat("x", 500), event.Any.WithKey(strings.Repeat("k", 200)), good); r.Positions[0] != 1 {
		t.Errorf("%+v", r)
	}
}

func TestUnknownTenantIsNamed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	tenant := must(store.ForTenant("nowhere"))(t)
	_, appendErr := tenant.Append(ctx, "s", event.Any, someEvents(1)...)
	var readErr, streamErr error
	for _, readErr = range tenant.ReadAll(ctx, ReadOptions{}) {
	}
	for _, streamErr = range tenant.ReadStream(ctx, "s", 1) {
	}
	for what, err := range map[string]error{"append": appendErr, "read all": readErr, "read stream": streamErr} {
		if !errors.Is(err, projection.ErrUnknownTenant) || !strings.Contains(err.Error(), `unknown tenant "nowhere"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"", "\xff", "a\nb", strings.Repeat("x", 201)} {
		_, forErr := store.ForTenant(name)
		_, createErr := store.CreateTenant(ctx, name)
		if forErr == nil || createErr == nil || store.CreateTenants(ctx, "fine", name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	if tenants := must(store.Tenants(ctx))(t); !slices.Equal(tenants, []string{projection.DefaultTenant}) {
		t.Errorf("tenants %q", tenants)
	}
}

func TestTenantsStayApart(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	names := []string{"a'; drop table millrace_events --", "b", strings.Repeat("я", 100)}
	noError(t, store.CreateTenants(ctx, names...))
	noError(t, store.CreateTenants(ctx, names...)) // they exist
	for i, name := range names {
		tenant := must(store.ForTenant(name))(t)
		for range 3 {
			mustAppend(t, tenant, "s", event.Any, event.Untyped("of", i))
		}
	}
	for i, name := range names {
		tenant := must(store.ForTenant(name))(t)
		for _, events := range [][]event.Envelope{all(t, tenant), collect(t, tenant.ReadStream(ctx, "s", 1))} {
			if !slices.Equal(positions(events), []int64{1, 2, 3}) || string(events[2].Body) != fmt.Sprint(i) || events[2].Version != 3 {
				t.Errorf("%q: %+v", name, events)
			}
		}
	}
	slices.Sort(names)
	if tenants := must(store.Tenants(ctx))(t); !slices.Equal(tenants, slices.Insert(names, 2, projection.DefaultTenant)) {
		t.Errorf("tenants %q", tenants)
	}
}

func TestReadsSelectByTypeStreamAndPosition(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	n := 2*eventlog.PageEvents + 10
	for i := range n / 10 {
		pairs := slices.Repeat([]event.Event{{Type: "odd"}, {Type: "even"}}, 5)
		mustAppend(t, store.tenant, fmt.Sprint("s", i%2), event.Any, pairs...)
	}
	where := func(keep func(e event.Envelope) bool) (list []int64) {
		return positions(slices.DeleteFunc(all(t, store.tenant), func(e event.Envelope) bool { return !keep(e) }))
	}
	for _, c := range []struct {
		opts ReadOptions
		keep func(e event.Envelope) bool
	}{
		{ReadOptions{}, func(event.Envelope) bool { return true }},
		{ReadOptions{After: 700}, func(e event.Envelope) bool { return e.Position > 700 }},
		{ReadOptions{After: -1}, func(event.Envelope) bool { return true }},
		{ReadOptions{After: 1 << 62}, func(event.Envelope) bool { return false }},
		{ReadOptions{Types: []string{"odd", "x\"y"}}, func(e event.Envelope) bool { return e.Type == "odd" }},
		{ReadOptions{Types: []string{"odd"}, After: 500}, func(e event.Envelope) bool { return e.Type == "odd" && e.Position > 500 }},
		{ReadOptions{Stream: "s1"}, func(e event.Envelope) bool { return e.Stream == "s1" }},
		{ReadOptions{Stream: "s1", After: 9, Types: []string{"even"}}, func(e event.Envelope) bool { return e.Stream == "s1" && e.Position > 9 && e.Type == "even" }},
	} {
		if got, want := positions(collect(t, store.ReadAll(ctx, c.opts))), where(c.keep); !slices.Equal(got, want) {
			t.Errorf("%+v: %d events, want %d", c.opts, len(got), len(want))
		}
	}
	if got := collect(t, store.ReadStream(ctx, "s1", 400)); len(got) != n/20*10-399 || got[0].Version != 400 {
		t.Errorf("%d events from version 400 on", len(got))
	}
	// An iterator that is left early holds no connection.
	for range 3 * store.opts.Readers {
		for range store.ReadAll(ctx, ReadOptions{}) {
			break
		}
	}
	if used := store.DB().Stats().InUse; used != 0 {
		t.Errorf("%d connections are in use", used)
	}
}

func TestLargeEventsAreReadInSmallerPages(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	body := must(json.Marshal(strings.Repeat("x", eventlog.PageBytes/4)))(t)
	var want []int64
	for range 5 {
		large := []event.Event{{Type: "L", Body: body}, {Type: "L", Body: body}, {Type: "S"}}
		want = append(want, mustAppend(t, store.tenant, "s", event.Any, large...).Positions...)
	}
	want = append(want, mustAppend(t, store.tenant, "s", event.Any, someEvents(1000)...).Positions...)
	if got := positions(all(t, store.tenant)); !slices.Equal(got, want) {
		t.Errorf("%d events, want %d", len(got), len(want))
	}
	page := must(store.tenant.allPages(testContext(t), ReadOptions{}).Read(0, eventlog.PageEvents))(t)
	if !page.Truncated || len(page.Events) > 10 {
		t.Errorf("the first page has %d events, truncated %v", len(page.Events), page.Truncated)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(eventlog.PageEvents+10)...)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var last error
	n := 0
	for _, err := range store.ReadAll(ctx, ReadOptions{}) {
		if last = err; err == nil {
			n++
		}
		if n == 10 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || n != eventlog.PageEvents {
		t.Errorf("%d events, then %v", n, last)
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

func TestPositionsAreNeverReused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := migrated(t, openStore(t, path, Options{}))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(5)...)
	mustExec(t, store, "delete from millrace_events where position > 2")
	if r := mustAppend(t, store.tenant, "s", event.Exact(5), someEvents(1)...); r.Positions[0] != 6 || r.Version != 6 {
		t.Errorf("after a delete: %+v", r)
	}
	mustExec(t, store, "delete from millrace_events")
	store.Close()
	store = openStore(t, path, Options{})
	if r := mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...); r.Positions[0] != 7 || r.Version != 7 {
		t.Errorf("after all events were deleted and the file was opened again: %+v", r)
	}
	// A position that was returned in a transaction that rolled back was never visible.
	boom := errors.New("boom")
	err := store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		_, _, err := store.AppendTx(ctx, tx, "s", event.Any, someEvents(1)...)
		return errors.Join(err, boom)
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if r := mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...); r.Positions[0] != 8 {
		t.Errorf("after a rollback: %+v", r)
	}
}

func TestTenantsPositionsHaveALimit(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := newTenant(t, store, "other")
	mustAppend(t, other, "s", event.Any, someEvents(1)...)
	mustExec(t, store, "update millrace_tenants set head = ? where name = 'default'", lastPosition-1)
	if _, err := store.Append(testContext(t), "s", event.Any, someEvents(2)...); err == nil || !strings.Contains(err.Error(), "1099511627775 is the last one") {
		t.Errorf("error %v", err)
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if got := positions(all(t, store.tenant)); !slices.Equal(got, []int64{lastPosition}) {
		t.Errorf("positions %v", got)
	}
	if got := positions(all(t, other)); !slices.Equal(got, []int64{1}) {
		t.Errorf("positions of the next tenant %v", got)
	}
}
