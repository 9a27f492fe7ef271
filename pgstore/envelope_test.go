package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
)

// awkwardStore has rows with every kind of value that the columns can hold.
func awkwardStore(t *testing.T) *Store {
	store := newStore(t)
	row := func(position int64, stream, body string, headers, causation, correlation any, at string) {
		mustExec(t, store, `insert into millrace_default.events (global_seq, stream_id, stream_version, type, body, headers,
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
	row(1<<62, strings.Repeat("s", 2000), `"`+strings.Repeat("x", 3*decoderChunk)+`"`, nil, strings.Repeat("c", 2*decoderChunk), nil, "2024-01-01")
	row(1<<63-1, "end", `{"b": [1, {"c": null}]}`, nil, nil, nil, "2024-01-01")
	return store
}

func TestRowsAreDecodedAsTheDriverDoes(t *testing.T) {
	store := awkwardStore(t)
	ctx := testContext(t)
	args := [][]byte{number(0), number(1<<63 - 1), number(100)}
	conn, err := store.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	got, _, truncated, err := readEnvelopes(conn.Conn().PgConn().ExecParams(ctx, store.sql(store.statements.tail), args, nil, nil, binaryFormat), 0)
	if err != nil || truncated {
		t.Fatalf("truncated %v, %v", truncated, err)
	}
	rows, err := conn.Query(ctx, store.sql(store.statements.tail), pgx.QueryExecModeDescribeExec, 0, int64(1<<63-1), 100)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (event.Envelope, error) {
		var e event.Envelope
		var body, headers []byte
		var causation, correlation *string
		err := row.Scan(&e.Position, &e.Stream, &e.Version, &e.Type, &body, &headers, &causation, &correlation, &e.Time)
		e.Body, e.RawHeaders, e.Time = body, headers, e.Time.UTC()
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
	if len(got) != len(want) || len(got) != 9 {
		t.Fatalf("%d events, the driver reads %d", len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("got  %.300v\nwant %.300v", got[i], want[i])
		}
	}
}

func TestReadEndsAtTheByteLimitWithAtLeastOneEvent(t *testing.T) {
	store := newStore(t)
	mustAppend(t, store.Tenant, "s", event.Any, someEvents(10)...)
	size := collect(t, store.ReadAll(testContext(t), ReadOptions{}))[0].Size()
	err := store.pool.AcquireFunc(testContext(t), func(conn *pgxpool.Conn) error {
		for _, c := range []struct {
			limit, want int
			truncated   bool
		}{{0, 10, false}, {1, 1, true}, {size, 1, true}, {size + 1, 2, true}, {9*size + 1, 10, false}, {100 * size, 10, false}} {
			args := [][]byte{number(0), number(100), number(100)}
			got, _, truncated, err := readEnvelopes(conn.Conn().PgConn().ExecParams(testContext(t), store.sql(store.statements.tail), args, nil, nil, binaryFormat), c.limit)
			if err != nil || len(got) != c.want || truncated != c.truncated {
				t.Errorf("limit %d: %d events, truncated %v, %v", c.limit, len(got), truncated, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestConnectionIsUsableAfterAReadThatFailed(t *testing.T) {
	store := newStore(t)
	mustAppend(t, store.Tenant, "s", event.Any, someEvents(3)...)
	err := store.pool.AcquireFunc(testContext(t), func(conn *pgxpool.Conn) error {
		for _, sql := range []string{"select 1", "select nonsense", "select 1/(3 - g) from generate_series(1, 4) g"} {
			if _, _, _, err := readEnvelopes(conn.Conn().PgConn().ExecParams(testContext(t), sql, nil, nil, nil, binaryFormat), 0); err == nil {
				t.Errorf("%s: no error", sql)
			}
		}
		args := [][]byte{number(0), number(100), number(100)}
		events, _, _, err := readEnvelopes(conn.Conn().PgConn().ExecParams(testContext(t), store.sql(store.statements.tail), args, nil, nil, binaryFormat), 0)
		if len(events) != 3 {
			t.Errorf("%d events", len(events))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := firstError(store.ReadAll(ctx, ReadOptions{})); err == nil {
		t.Error("no error of a context that ended")
	}
}

func TestAppendingToABodyDoesNotReachTheNextEvent(t *testing.T) {
	store := newStore(t)
	mustAppend(t, store.Tenant, "s", event.Any, someEvents(5)...)
	events := collect(t, store.ReadAll(testContext(t), ReadOptions{}))
	_ = append(events[0].Body, "xxxxxxxx"...)
	if string(events[1].Body) != "1" {
		t.Errorf("the next body is %s", events[1].Body)
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add(int64(1), int64(0), "stream", "type", []byte(`{"a":1}`), []byte(nil), "c", true)
	f.Add(int64(-1), int64(1<<63-1), "", "", []byte(`null`), []byte(`{}`), "", false)
	f.Fuzz(func(t *testing.T, position, micros int64, stream, eventType string, body, headers []byte, id string, whole bool) {
		big := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
		jsonb := func(b []byte) []byte { return append([]byte{jsonbVersion}, b...) }
		row := [][]byte{big(position), []byte(stream), big(7), []byte(eventType), jsonb(body), nil, []byte(id), nil, big(micros)}
		if !whole {
			// As it comes, whatever it is: it may be refused but must not panic.
			row[0], row[4], row[5] = body, body, headers
		}
		dec := decoder{types: make(map[string]string)}
		for range 2 {
			e, err := dec.envelope(row)
			if !whole || len(body) == 0 {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Position != position || e.Version != 7 || e.Stream != stream || e.Type != eventType || !bytes.Equal(e.Body, body) ||
				e.RawHeaders != nil || e.CausationID != id || e.CorrelationID != "" {
				t.Errorf("got %+v", e)
			}
			since := e.Time.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
			if micros > -1<<50 && micros < 1<<50 && since.Microseconds() != micros {
				t.Errorf("%d microseconds became %v", micros, e.Time)
			}
		}
	})
}
