package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

var ownSeed = flag.Uint64("own.seed", 0, "the seed of the random events that appends hand over; 0: a new one")

// handedOver returns a function that takes what the last append of a store gave to a resting feed, nil if that was
// nothing.
func handedOver(t *testing.T, store *Store) func() *engine.Page {
	t.Helper()
	var last atomic.Pointer[engine.Page]
	t.Cleanup(store.port().OnWake(engine.Waker{
		Rests: func(string) bool { return true },
		Wake:  func(_ string, _ int64, own *engine.Page) { last.Store(own) },
	}))
	return func() *engine.Page { return last.Swap(nil) }
}

// preparing skips a test where the pool's mode forbids prepared statements: then appends hand over nothing.
func preparing(t *testing.T) {
	t.Helper()
	if *mode != "" && *mode != pgx.QueryExecModeCacheStatement.String() {
		t.Skipf("appends of the mode %s hand over no events", *mode)
	}
}

// oddValue returns a JSON value that jsonb prints otherwise than it was written.
func oddValue(r *rand.Rand, depth int) string {
	scalars := []string{"1e5", "1.10", "-0", "0.0", "1E-7", "-0.00e3", "123456789012345678901234567890.10", "12e+2",
		"true", "null", ` "a" `, `"\u00e4\ud83d\ude00"`,
		`"\\\"\/\b\f\n\r\t"`, `"\u2028<&>\u007f"`, `"ä😀"`, `""`, "[ ]", "{ }", `"` + strings.Repeat("x", r.IntN(300)) +
			`"`}
	n := r.IntN(4)
	parts := make([]string, n)
	switch pick := r.IntN(4); {
	case depth == 0 || pick < 2:
		return scalars[r.IntN(len(scalars))]
	case pick == 2:
		for i := range parts {
			parts[i] = oddValue(r, depth-1)
		}
		return "[" + strings.Join(parts, " ,\n") + "]"
	}
	names := []string{"b", "a", "aa", "B", "", `\u0061`, "long name", "ä", "10", "9"} // "a" and "\u0061" are the same
	for i := range parts {
		parts[i] = fmt.Sprintf("\"%s\" : %s", names[r.IntN(len(names))], oddValue(r, depth-1))
	}
	return "{" + strings.Join(parts, ",\t") + "}"
}

func oddEvent(r *rand.Rand) event.Event {
	texts := []string{"", "x", "ä😀", `"\`, "a b\n"}
	e := event.Event{
		Type: "Odd" + texts[r.IntN(len(texts))], CausationID: texts[r.IntN(len(texts))],
		CorrelationID: texts[r.IntN(len(texts))],
	}
	if r.IntN(8) > 0 {
		e.Body = json.RawMessage(oddValue(r, 3))
	}
	for range r.IntN(4) {
		if e.Headers == nil {
			e.Headers = make(map[string]string)
		}
		e.Headers["h"+texts[r.IntN(len(texts))]] = texts[r.IntN(len(texts))]
	}
	return e
}

func TestOwnEventsAreWhatAReadReturns(t *testing.T) {
	t.Parallel()
	preparing(t)
	seed := *ownSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-own.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	store := newStore(t)
	for name, tenant := range map[string]*Tenant{"default": store.tenant, "named": newTenant(t, store, `"other" ä`)} {
		mustAppend(t, tenant, "first", event.Any, someEvents(1)...) // from the next one on, appends are prepared
		own := handedOver(t, store)
		at, version, handed := int64(1), make(map[string]int64), 0
		for i := range 300 {
			stream := fmt.Sprintf("stream %d ä", r.IntN(20))
			if r.IntN(3) == 0 {
				stream = fmt.Sprint("new", i)
			}
			expected := event.Any
			if r.IntN(2) == 0 {
				expected = event.Exact(version[stream])
			}
			if r.IntN(3) == 0 {
				expected = expected.WithKey(fmt.Sprint("key", i))
			}
			events := make([]event.Event, 1+max(0, r.IntN(8)-4))
			for i := range events {
				events[i] = oddEvent(r)
			}
			result := mustAppend(t, tenant, stream, expected, events...)
			version[stream] = result.Version
			got := own()
			if got == nil {
				at = result.Last() // it deleted old keys as well
				continue
			}
			handed++
			want := must(store.events.readPage(testContext(t), tenant.namedTenant,
				engine.ReadRange{After: at, UpTo: maxPosition, Limit: 100, MaxBytes: eventlog.TailBytes}))(t)
			if !reflect.DeepEqual(got.Events, want.Events) || got.Incarnation != want.Incarnation ||
				got.Bytes != want.Bytes {
				t.Fatalf("%s: handed over was\n%+v\nand read\n%+v", name, got, want)
			}
			at = result.Last()
		}
		if handed < 200 {
			t.Errorf("%s: only %d of 300 appends handed over their events", name, handed)
		}
	}
}

func TestAppendsHandOverOnlySmallEventsToFeedsThatRest(t *testing.T) {
	t.Parallel()
	preparing(t)
	store := openStore(t, migratedDatabase.Database(t), Options{KeyRetention: -1})
	ctx := testContext(t)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	var rests atomic.Bool
	t.Cleanup(store.port().OnWake(engine.Waker{
		Rests: func(string) bool { return rests.Load() }, Wake: func(string, int64, *engine.Page) {},
	}))
	var last atomic.Pointer[engine.Page]
	t.Cleanup(store.port().OnWake(engine.Waker{Wake: func(_ string, _ int64, own *engine.Page) { last.Store(own) }}))
	text := func(n int) event.Event {
		return event.Event{Type: "T", Body: []byte(`"` + strings.Repeat("x", n) + `"`)}
	}
	inTx := func() error {
		tx, err := store.pool.Begin(ctx)
		if err != nil {
			return err
		}
		_, err = store.AppendTx(ctx, tx, "a", event.Any, text(1))
		defer store.Wake()
		return errors.Join(err, tx.Commit(ctx))
	}
	append := func(expected event.Expected, events ...event.Event) func() error {
		return func() error {
			_, err := store.Append(ctx, "a", expected, events...)
			if errors.Is(err, event.ErrVersionConflict) {
				return nil
			}
			return err
		}
	}
	for _, test := range []struct {
		name  string
		do    func() error
		rests bool
		want  int
	}{
		{"a small event", append(event.Any, text(1)), true, 1},
		{"the feed reads", append(event.Any, text(1)), false, 0},
		{"several small events", append(event.Any, slices.Repeat([]event.Event{text(100)}, 20)...), true, 20},
		{"a key", append(event.Any.WithKey("k"), text(1)), true, 1},
		{"a repeat", append(event.Any.WithKey("k"), text(1)), true, 0},
		{"a version conflict", append(event.Exact(7), text(1)), true, 0},
		{"a large event", append(event.Any, text(ownBytes)), true, 0},
		{"many small events", append(event.Any, slices.Repeat([]event.Event{text(100)}, 60)...), true, 0},
		{
			"large headers", append(event.Any,
				event.Event{Type: "T", Headers: map[string]string{"h": strings.Repeat("x", ownBytes)}}), true, 0,
		},
		{"a large id", append(event.Any, event.Event{Type: "T", CausationID: strings.Repeat("x", ownBytes)}), true, 0},
		{"a short number with many digits", append(event.Any, event.Event{Type: "T", Body: []byte(`1e9000`)}), true, 0},
		{"a transaction of the caller", inTx, true, 0},
		{"InTx", func() error {
			return store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := store.AppendTx(ctx, tx, "a", event.Any, text(1))
				return err
			})
		}, true, 0},
	} {
		rests.Store(test.rests)
		last.Store(nil)
		noError(t, test.do())
		n := 0
		if own := last.Load(); own != nil {
			n = len(own.Events)
		}
		if n != test.want {
			t.Errorf("%s: %d events were handed over, want %d", test.name, n, test.want)
		}
	}
}

func TestAppendsThatMayNotReturnEventsSucceed(t *testing.T) {
	t.Parallel()
	preparing(t)
	store := newStore(t)
	mustExec(t, store, `create role writes_only; grant usage on schema millrace, millrace_default to writes_only;
		grant select, insert, update on millrace_default.streams to writes_only; grant select on all tables in schema millrace to writes_only;
		grant insert, select (global_seq, stream_version) on millrace_default.events to writes_only`)
	t.Cleanup(func() { mustExec(t, store, "drop owned by writes_only; drop role writes_only") })
	limited := openStore(t, store.pool.Config().ConnString(), Options{}, func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set role writes_only")
			return err
		}
	})
	for name, test := range map[string]struct {
		store  *Store
		before string
	}{
		"without the right to read":               {limited, "select"},
		"after a crash that lost the incarnation": {store, "truncate millrace.incarnation"},
	} {
		mustAppend(t, test.store.tenant, "a", event.Any, someEvents(1)...)
		own := handedOver(t, test.store)
		mustExec(t, store, test.before)
		before := countEvents(t, store.tenant)
		mustAppend(t, test.store.tenant, "a", event.Any, someEvents(1)...)
		if n := countEvents(t, store.tenant); own() != nil || n != before+1 {
			t.Errorf("%s: %d events after %d", name, n, before)
		}
	}
}

func TestTailTakesOwnEventsOnlyIfTheyFollowTheMark(t *testing.T) {
	t.Parallel()
	preparing(t)
	store := quietStore(t)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	own := handedOver(t, store)
	appended := func() *engine.Page {
		t.Helper()
		mustAppend(t, store.tenant, "a", event.Any, someEvents(2)...)
		return own()
	}
	if _, taken := store.port().TailPoller(projection.DefaultTenant).Take(appended()); taken { // 2, 3
		t.Error("taken before the start")
	}
	f := followTail(t, store, projection.DefaultTenant)
	refuses := func(what string, page *engine.Page) {
		t.Helper()
		if u, taken := f.tail.Take(page); taken {
			t.Errorf("%s: taken up to %d", what, u.Mark)
		}
	}
	takes := func(page *engine.Page) {
		t.Helper()
		u, taken := f.tail.Take(page)
		if !taken || u.From != f.mark || u.Mark != page.Events[1].Position || u.Again != 0 || u.Held != nil || u.More ||
			u.Incarnation != f.in {
			t.Fatalf("taken: %v, %+v after %d", taken, u, f.mark)
		}
		f.mark = u.Mark
		for _, e := range u.Events {
			f.positions = append(f.positions, e.Position)
		}
	}
	first := appended() // 4, 5
	takes(first)
	refuses("again", first)
	skipped, second := appended(), appended() // 6 to 9
	refuses("beyond events that were not taken", second)
	takes(skipped)
	takes(second)
	other := *appended() // 10, 11
	right := other.Incarnation
	other.Incarnation++
	refuses("of another incarnation", &other)
	other.Incarnation = right
	other.Events = []event.Envelope{other.Events[1], other.Events[0]}
	refuses("not in order", &other)
	f.untilMark(t, 11)

	tx := openTx(t, store)
	appendIn(t, tx, store.tenant, "open", 1) // 12
	beyond := appended()                     // 13, 14
	refuses("beyond an open append", beyond)
	f.untilHeld(t, 11)
	refuses("beyond an open append that is waited for", beyond)
	commit(t, tx)
	closed := must(store.events.readPage(testContext(t), store.tenant.namedTenant,
		engine.ReadRange{After: 11, UpTo: 12, Limit: 10, MaxBytes: eventlog.TailBytes}))(t)
	refuses("while a gap is waited for", &closed)
	f.untilMark(t, 14)
	takes(appended()) // 15, 16
	f.untilMark(t, 16)
	f.got(t, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
}

// A promoted standby lacks the last appends. Their positions follow its mark.
func TestEventsOfALostServerAreNotTaken(t *testing.T) {
	t.Parallel()
	preparing(t)
	server, _ := ownServer(t, nil)
	standby := must(server.Standby(testContext(t), pgtest.StandbyOptions{}))(t)
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	noError(t, server.CatchUp(testContext(t), standby))
	var to atomic.Pointer[pgtest.Server]
	to.Store(server)
	store := moving(t, &to)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	noError(t, errors.Join(server.CatchUp(testContext(t), standby), standby.Detach(testContext(t))))
	own := handedOver(t, store)
	mustAppend(t, store.tenant, "lost", event.Any, someEvents(1)...)
	lost := own()
	noError(t, errors.Join(server.Kill(), standby.Promote(testContext(t))))
	to.Store(standby)
	store.pool.Reset()
	f := followTail(t, store, projection.DefaultTenant)
	if f.mark+1 != lost.Events[0].Position {
		t.Fatalf("the mark is %d, and the lost event was at %d: the test shows nothing", f.mark,
			lost.Events[0].Position)
	}
	if _, taken := f.tail.Take(lost); taken {
		t.Error("a lost event is taken")
	}
	first := mustAppend(t, store.tenant, "kept", event.Any, someEvents(1)...).Positions[0]
	f.untilMark(t, first) // the numbers before it are gone
	mustAppend(t, store.tenant, "kept", event.Any, someEvents(1)...)
	if u, taken := f.tail.Take(own()); !taken || u.Mark != first+1 {
		t.Errorf("taken: %v, up to %d", taken, u.Mark)
	}
}

// Own appends, appends in transactions that stay open or roll back, and reads, in any order.
func TestOwnEventsAndReadsLoseNothing(t *testing.T) {
	t.Parallel()
	preparing(t)
	store := quietStore(t)
	foreign := openStore(t, store.pool.Config().ConnString(), Options{NoNotify: true})
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	f := followTail(t, store, projection.DefaultTenant)
	pages := make(chan *engine.Page, 10_000)
	t.Cleanup(store.port().OnWake(engine.Waker{
		Rests: func(string) bool { return true },
		Wake:  func(_ string, _ int64, own *engine.Page) { pages <- own },
	}))
	ctx := testContext(t)
	var writers sync.WaitGroup
	var failed atomic.Pointer[error]
	for w := range 4 {
		writers.Go(func() {
			for range 150 {
				if _, err := store.Append(ctx, fmt.Sprint("own", w), event.Any,
					someEvents(1+rand.IntN(3))...); err != nil {
					failed.Store(&err)
				}
				pause(ctx, time.Duration(rand.IntN(3))*time.Millisecond)
			}
		})
	}
	writers.Go(func() {
		for range 60 {
			tx := must(foreign.pool.Begin(ctx))(t)
			_, err := foreign.AppendTx(ctx, tx, "foreign", event.Any, someEvents(1)...)
			pause(ctx, time.Duration(rand.IntN(5))*time.Millisecond)
			end := tx.Commit
			if rand.IntN(3) == 0 {
				end = tx.Rollback
			}
			err = errors.Join(err, end(ctx))
			if err != nil {
				failed.Store(&err)
			}
		}
	})
	go func() {
		writers.Wait()
		for range 20 { // no one else appends, so that some of these are taken
			pause(ctx, 20*time.Millisecond)
			if _, err := store.Append(ctx, "own", event.Any, someEvents(1)...); err != nil {
				failed.Store(&err)
			}
		}
		close(pages)
	}()
	taken, refused := 0, 0
	for own := range pages {
		u, ok := f.tail.Take(own)
		if !ok {
			refused++
			if own.Events[0].Position > f.mark {
				must(f.poll(ctx))(t)
			}
			continue
		}
		taken++
		if u.From != f.mark {
			t.Fatalf("taken from %d to %d after %d", u.From, u.Mark, f.mark)
		}
		f.mark = u.Mark
		for _, e := range u.Events {
			f.positions = append(f.positions, e.Position)
		}
	}
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	var all []int64
	for _, e := range collect(t, store.ReadAll(ctx, event.ReadOptions{After: 1})) {
		all = append(all, e.Position)
	}
	f.untilMark(t, all[len(all)-1])
	f.got(t, all...)
	if taken == 0 || refused == 0 {
		t.Errorf("%d appends were taken, %d refused: the test shows nothing", taken, refused)
	}
}
