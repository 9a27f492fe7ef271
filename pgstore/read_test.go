package pgstore

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// awkwardStore has rows with every kind of value that the columns can hold.
func awkwardStore(t *testing.T) *Store {
	store := newStore(t)
	row := func(position int64, stream, body string, headers, causation, correlation any, at string) {
		mustExec(t, store,
			`insert into millrace_default.events (global_seq, stream_id, stream_version, type, body, headers,
			causation_id, correlation_id, created_at) overriding system value
			values ($1, $2, $1, $3, $4::jsonb, $5::jsonb, $6, $7, $8::timestamptz)`,
			position, stream, "T "+stream, body, headers, causation, correlation, at)
	}
	row(1, "plain", `{"a": 1}`, nil, nil, nil, "2024-02-29 12:34:56.789012+00")
	row(2, "", `null`, `{}`, "", "", "2000-01-01 00:00:00+00")
	row(3, "ünïcödé 😀", `"ünï\u0001 😀"`, `{"ü": "😀"}`, "ü", "😀", "1999-12-31 23:59:59.999999+00")
	row(4, "old", `[]`, nil, "c", nil, "1969-12-31 23:59:59.000001+05")
	row(5, "ancient", `true`, nil, nil, "c", "4713-01-01 00:00:00+00 BC")
	row(6, "late", `""`, nil, nil, nil, "294275-12-31 23:59:59.999999+00")
	row(7, "number", `[123456789012345678901234567890.5, -1e300, 0.1]`, nil, nil, nil, "2038-01-19 03:14:08+00")
	row(1<<62, strings.Repeat("s", 2000), `"`+strings.Repeat("x", 3*16<<10)+
		`"`, nil, strings.Repeat("c", 2*16<<10), nil, "2024-01-01")
	row(1<<63-1, "end", `{"b": [1, {"c": null}]}`, nil, nil, nil, "2024-01-01")
	return store
}

func TestRowsAreDecodedAsTheDriverDoes(t *testing.T) {
	t.Parallel()
	store := awkwardStore(t)
	ctx := testContext(t)
	args := [][]byte{wire.Int(0), wire.Int(1<<63 - 1), wire.Int(100)}
	conn := must(store.pool.Acquire(ctx))(t)
	defer conn.Release()
	got, err := wire.ReadEvents(conn.Conn().PgConn().ExecParams(ctx, store.tenant.sql("read_tail"), args, nil, nil,
		wire.Binary), wire.Reading{})
	if err != nil || got.Truncated {
		t.Fatalf("truncated %v, %v", got.Truncated, err)
	}
	rows := must(conn.Query(ctx, store.tenant.sql("read_tail"), pgx.QueryExecModeDescribeExec, 0, int64(1<<63-1),
		100))(t)
	want, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (event.Envelope, error) {
		var e event.Envelope
		var body, headers []byte
		var causation, correlation *string
		err := row.Scan(&e.Position, &e.Stream, &e.Version, &e.Type, &body, &headers, &causation, &correlation, &e.Time)
		e.Body, e.RawHeaders, e.Time = body, headers, valid.Time(e.Time)
		if causation != nil {
			e.CausationID = *causation
		}
		if correlation != nil {
			e.CorrelationID = *correlation
		}
		return e, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.List) != len(want) || len(want) != 9 {
		t.Fatalf("%d events, the driver reads %d", len(got.List), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got.List[i], want[i]) {
			t.Errorf("got  %.300v\nwant %.300v", got.List[i], want[i])
		}
	}
}

func TestReadEndsAtTheByteLimitWithAtLeastOneEvent(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(10)...)
	size := collect(t, store.ReadAll(testContext(t), event.ReadOptions{}))[0].Size()
	noError(t, store.pool.AcquireFunc(testContext(t), func(conn *pgxpool.Conn) error {
		for _, c := range []struct {
			limit, want int
			truncated   bool
		}{{0, 10, false}, {1, 1, true}, {size, 1, true}, {size + 1, 2, true}, {9*size + 1, 10, false},
			{100 * size, 10, false}} {
			args := [][]byte{wire.Int(0), wire.Int(100), wire.Int(100)}
			got, err := wire.ReadEvents(conn.Conn().PgConn().ExecParams(testContext(t), store.tenant.sql("read_tail"),
				args, nil, nil, wire.Binary), wire.Reading{MaxBytes: c.limit})
			if err != nil || len(got.List) != c.want || got.Truncated != c.truncated {
				t.Errorf("limit %d: %d events, truncated %v, %v", c.limit, len(got.List), got.Truncated, err)
			}
		}
		return nil
	}))
}

func TestConnectionIsUsableAfterAReadThatFailed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
	noError(t, store.pool.AcquireFunc(testContext(t), func(conn *pgxpool.Conn) error {
		for _, sql := range []string{"select 1", "select nonsense", "select 1/(3 - g) from generate_series(1, 4) g"} {
			if _, err := wire.ReadEvents(conn.Conn().PgConn().ExecParams(testContext(t), sql, nil, nil, nil,
				wire.Binary), wire.Reading{}); err == nil {
				t.Errorf("%s: no error", sql)
			}
		}
		args := [][]byte{wire.Int(0), wire.Int(100), wire.Int(100)}
		read, err := wire.ReadEvents(conn.Conn().PgConn().ExecParams(testContext(t), store.tenant.sql("read_tail"),
			args, nil, nil, wire.Binary), wire.Reading{})
		if len(read.List) != 3 {
			t.Errorf("%d events", len(read.List))
		}
		return err
	}))
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := firstError(store.ReadAll(ctx, event.ReadOptions{})); err == nil {
		t.Error("no error of a context that ended")
	}
}

// BenchmarkReadEnvelopes reads pages as a projection does that catches up, and single events as a feed does.
func BenchmarkReadEnvelopes(b *testing.B) {
	store := newStore(b)
	const most = 2000
	body := []byte(`"` + strings.Repeat("x", 198) + `"`)
	events := make([]event.Event, most)
	for i := range events {
		events[i] = event.Event{Type: "Counted", Body: body, CorrelationID: fmt.Sprintf("correlation-%d", i)}
	}
	mustAppend(b, store.tenant, "stream", event.Any, events...)
	conn, err := store.pool.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	for _, n := range []int{1, 100, most} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			args := [][]byte{wire.Int(0), wire.Int(maxPosition), wire.Int(int64(n))}
			for b.Loop() {
				got, err := wire.ReadEvents(conn.Conn().PgConn().ExecParams(b.Context(), store.tenant.sql("read_tail"),
					args, nil, nil, wire.Binary), wire.Reading{})
				if err != nil || len(got.List) != n {
					b.Fatalf("%d events, %v", len(got.List), err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// Another program may insert any time that the server knows, also infinity.
func TestEventsOfAnyTimeHaveAnAge(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	times := []string{"infinity", "-infinity", "4713-01-01 BC", "294276-12-31"}
	mustExec(t, store, "insert into millrace_default.streams values ('s', 4)")
	var after []engine.TenantPosition
	for i, at := range times {
		mustExec(t, store,
			"insert into millrace_default.events (stream_id, stream_version, type, body, created_at) values ('s', $1, 'T', '{}', $2::text::timestamptz)", i+1, at)
		after = append(after, engine.TenantPosition{Tenant: "default", Position: int64(i)})
	}
	ages := must(store.port().Ages(testContext(t), after))(t)
	for i, p := range after {
		event, found := ages[p]
		age := event.Age
		if long := strings.HasPrefix(times[i], "-") || strings.HasSuffix(times[i], "BC"); !found || age < 0 ||
			long != (age > 0) {
			t.Errorf("an event of %s has the age %v, %v", times[i], age, found)
		}
	}
}
