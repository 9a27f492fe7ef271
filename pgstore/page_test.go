package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// foreign inserts an event by SQL, as another program does.
func foreign(t *testing.T, store *Store, stream, eventType, body string) (position int64) {
	t.Helper()
	return one[int64](t, store,
		`with s as (insert into millrace_default.streams as s (stream_id, version) values ($1, 1)
		on conflict (stream_id) do update set version = s.version + 1 returning version)
		insert into millrace_default.events (stream_id, stream_version, type, body) select $1::text, version, $2, $3::text::jsonb from s
		returning global_seq`, stream, eventType, body)
}

// damaged inserts an event whose body the server cannot read: it stands outside of the table, and is gone there.
func damaged(t *testing.T, store *Store, stream, eventType string) (position int64) {
	t.Helper()
	mustExec(t, store, "alter table millrace_default.events alter column body set storage external")
	position = foreign(t, store, stream, eventType, `"`+strings.Repeat("x", 5000)+`"`)
	toast := one[string](t, store,
		"select reltoastrelid::regclass::text from pg_class where oid = 'millrace_default.events'::regclass")
	mustExec(t, store, fmt.Sprintf(`set allow_system_table_mods = on;
		update pg_class set relkind = 'r' where oid = '%[1]s'::regclass; delete from %[1]s where chunk_id = (select max(chunk_id) from %[1]s);
		update pg_class set relkind = 't' where oid = '%[1]s'::regclass; reset allow_system_table_mods`, toast), pgx.QueryExecModeSimpleProtocol)
	mustExec(t, store, "vacuum "+toast) // until then its readers see what was deleted
	return position
}

func plain(t *testing.T, store *Store, stream, eventType string) (position int64) {
	t.Helper()
	return foreign(t, store, stream, eventType, "1")
}

// shape returns what was read of a page: positions, with "!" after those without a body.
func shape(page engine.Page) string {
	var s strings.Builder
	for _, e := range page.Events {
		fmt.Fprintf(&s, "%d", e.Position)
		if e.Unreadable != nil {
			s.WriteString("!")
		}
		s.WriteString(" ")
	}
	return fmt.Sprintf("%sto %d", s.String(), page.To)
}

func TestPageEndsBeforeAnEventThatCannotBeRead(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for i := range 7 {
		insert := []func(*testing.T, *Store, string,
			string) int64{plain, plain, damaged, plain, damaged, damaged, plain}[i]
		insert(t, store, "s", fmt.Sprintf("T%d", i%3))
	}
	all := engine.ReadRange{UpTo: 7, Limit: 100, MaxBytes: 1 << 20}
	for name, c := range map[string]struct {
		r    engine.ReadRange
		want []string
	}{
		"all": {all, []string{"1 2 to 2", "3! to 3", "4 to 4", "5! to 5", "6! to 6", "7 to 7"}},
		"one at a time": {
			engine.ReadRange{UpTo: 7, Limit: 1}, []string{"1 to 1",
				"2 to 2", "3! to 3", "4 to 4", "5! to 5", "6! to 6", "7 to 7"},
		},
		"types without it": {engine.ReadRange{UpTo: 7, Limit: 100, Types: []string{"T0"}}, []string{"1 4 7 to 7"}},
		"types with it": {
			engine.ReadRange{UpTo: 7, Limit: 100, Types: []string{"T1", "T0"}},
			[]string{"1 2 4 to 4", "5! to 5", "7 to 7"},
		},
		"a partition": {
			engine.ReadRange{UpTo: 7, Limit: 100,
				Share: partition.Share{Range: partition.RangeOf(partition.Of(partition.Slot("s"), 2), 2)}},
			[]string{"1 2 to 2", "3! to 3", "4 to 4", "5! to 5", "6! to 6", "7 to 7"},
		},
		"up to it": {engine.ReadRange{UpTo: 3, Limit: 100}, []string{"1 2 to 2", "3! to 3"}},
	} {
		r := c.r
		var got []string
		for r.After < r.UpTo {
			page := must(store.port().Read(testContext(t), "default", r))(t)
			got = append(got, shape(page))
			r.After = page.To
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A foreign body of 81 KB whose text is longer than PostgreSQL can build.
func TestEventThatIsTooLargeIsReadWithoutItsBody(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(2)...)
	large := foreign(t, store, "s", "huge", "["+strings.TrimSuffix(strings.Repeat("1e131071,", 9000), ",")+"]")
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	page := must(store.port().Read(testContext(t), "default",
		engine.ReadRange{After: large - 1, UpTo: large + 1, Limit: 100}))(t)
	var unreadable *event.UnreadableError
	var permanent *backoff.PermanentError
	e := page.Events[0]
	if len(page.Events) != 1 || page.To != large || e.Position != large || e.Stream != "s" || e.Version != 3 ||
		e.Type != "huge" || e.Body != nil {
		t.Errorf("page %s with %+v", shape(page), e)
	}
	if !errors.As(e.Unreadable, &unreadable) || unreadable.Position != large || unreadable.Stream != "s" ||
		!pgerr.Is(e.Unreadable, "54000") ||
		!errors.As(e.Unreadable, &permanent) {
		t.Errorf("error %v", e.Unreadable)
	}
}

// A reader gets it with the error, and goes on after it unless it ends its loop.
func TestReadersGoOnAfterAnEventThatCannotBeRead(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	plain(t, store, "s", "T")
	damaged(t, store, "s", "T")
	plain(t, store, "s", "T")
	ctx := testContext(t)
	for name, events := range map[string]iter.Seq2[event.Envelope, error]{
		"read stream":                 store.ReadStream(ctx, "s", 1),
		"read events of tenant":       store.ReadAll(ctx, event.ReadOptions{}),
		"read events of tenant, some": store.ReadAll(ctx, event.ReadOptions{Types: []string{"T"}}),
	} {
		var got []string
		for e, err := range events {
			got = append(got, shape(engine.Page{Events: []event.Envelope{e}, To: e.Version}))
			var unreadable *event.UnreadableError
			doing, _, _ := strings.Cut(name, ",")
			if e.Position == 2 && (!errors.As(err, &unreadable) ||
				unreadable != e.Unreadable || e.Body != nil || e.Time.IsZero() ||
				!strings.Contains(err.Error(), doing)) ||
				e.Position != 2 && err != nil {
				t.Errorf("%s: event %+v, error %v", name, e, err)
			}
		}
		if fmt.Sprint(got) != "[1 to 1 2! to 2 3 to 3]" {
			t.Errorf("%s: %q", name, got)
		}
		for _, err := range events {
			if err != nil {
				break
			}
		}
	}
}

// The tail hands it on as it does others.
func TestTailGoesOnAfterAnEventThatCannotBeRead(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	tail := store.port().TailPoller("default")
	must(tail.Poll(testContext(t)))(t)
	plain(t, store, "s", "T")
	damaged(t, store, "s", "T")
	plain(t, store, "s", "T")
	var got []string
	for more := true; more; {
		update := must(tail.Poll(testContext(t)))(t)
		got, more = append(got, shape(engine.Page{Events: update.Events, To: update.Mark})), update.More
	}
	if fmt.Sprint(got) != "[1 to 1 2! to 2 3 to 3]" {
		t.Errorf("updates %q", got)
	}
}

// What fails without bodies, too, is not the fault of an event.
func TestReadThatFailsForAnotherReasonBlamesNoEvent(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(2)...)
	calls, outOfMemory := 0, error(&pgconn.PgError{Code: pgerr.OutOfMemory})
	r := pageRead{tenant: store.tenant.namedTenant, run: func(context.Context,
		string, [][]byte, func(*pgconn.ResultReader) error) error {
		calls++
		return outOfMemory
	}}
	if _, err := r.page(testContext(t), "select", make([][]byte, 3)); err != outOfMemory || calls != 2 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

// The read of the event alone meets what the first read did not: the event was deleted, or the server is short of
// memory.
func TestEventIsBlamedOnlyIfItsOwnReadFails(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	read := func(states ...string) (wire.Events, error) {
		calls := 0
		r := pageRead{tenant: store.tenant.namedTenant, run: func(ctx context.Context,
			sql string, args [][]byte, decode func(*pgconn.ResultReader) error) error {
			state := states[calls]
			calls++
			if state == "deleted" {
				mustExec(t, store, "delete from millrace_default.events")
			} else if state != "" {
				return &pgconn.PgError{Code: state}
			}
			_, err := store.events.readOf(ctx, store.tenant.namedTenant, sql, args, wire.Binary, decode)
			return err
		}}
		return r.page(testContext(t), store.tenant.sql("read_tail"), [][]byte{wire.Int(0), wire.Int(1), wire.Int(1)})
	}
	if read, err := read("54000", "", "54000"); err != nil || len(read.List) != 1 || read.List[0].Unreadable == nil {
		t.Errorf("%+v, %v, want an event that cannot be read", read, err)
	}
	for _, state := range []string{pgerr.OutOfMemory, "58030"} {
		if read, err := read(state, "", state); !pgerr.Is(err, state) {
			t.Errorf("%s: %+v, %v", state, read, err)
		}
	}
	if read, err := read(pgerr.OutOfMemory, "", ""); err != nil || len(read.List) != 1 ||
		read.List[0].Unreadable != nil {
		t.Errorf("%+v, %v, want the event", read, err)
	}
	if read, err := read("54000", "", "deleted"); !pgerr.Is(err, "54000") {
		t.Errorf("%+v, %v, want the first error", read, err)
	}
}
