package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// TestRealLog applies two years of real expense claims and compares the tables with totals that were computed without this
// project.
func TestRealLog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("applies 55,628 events")
	}
	folder := filepath.Join("..", "..", "..", "shared", "data") // beside the repository
	log := filepath.Join(folder, "domestic-declarations.ndjson.gz")
	if _, err := os.Stat(log); err != nil {
		t.Skipf("the log is not there: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "domestic-declarations.expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Events            int64            `json:"events"`
		Streams           int64            `json:"streams"`
		LongestStream     int64            `json:"longest_stream"`
		ByType            map[string]int64 `json:"events_by_type"`
		ByRole            map[string]int64 `json:"events_by_role"`
		StreamsByLastType map[string]int64 `json:"streams_by_last_event_type"`
		Paid              string           `json:"amount_paid_total"`
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}

	dsn := pgtest.Database(t)
	var out bytes.Buffer
	s, err := runDemo(t.Context(), options{input: log, writers: 16, databaseURL: dsn, keep: true}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !s.Verified || s.Events != want.Events || s.Streams != want.Streams {
		t.Errorf("verified %v, %d events, %d streams; want true, %d, %d", s.Verified, s.Events, s.Streams, want.Events, want.Streams)
	}
	pool := program.Pool(t, dsn)
	for sql, expected := range map[string]map[string]int64{
		"select event_type, n from demo.events_by_type":                                   want.ByType,
		"select role, n from demo.events_by_role":                                         want.ByRole,
		"select last_type, count(*) from demo.streams group by last_type":                 want.StreamsByLastType,
		"select 'longest', max(n) from demo.streams":                                      {"longest": want.LongestStream},
		"select total::text, n from demo.payments":                                        {want.Paid: want.ByType[paid]},
		"select 'streams', count(*) from demo.streams":                                    {"streams": want.Streams},
		"select 'with a time', count(headers ->> 'at') from demo_millrace_default.events": {"with a time": want.Events},
	} {
		if got := counts(t, pool, sql); !maps.Equal(got, expected) {
			t.Errorf("%s: got %v, want %v", sql, got, expected)
		}
	}
}

func counts(t *testing.T, pool *pgxpool.Pool, sql string) map[string]int64 {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	got := make(map[string]int64)
	var key string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { got[key] = n; return nil }); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}
