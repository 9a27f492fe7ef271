package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is the folder of the module.
const root = "../.."

// totals are the totals of the real log. They were computed without this project.
type totals struct {
	Events            int64            `json:"events"`
	Streams           int64            `json:"streams"`
	LongestStream     int64            `json:"longest_stream"`
	ByType            map[string]int64 `json:"events_by_type"`
	ByRole            map[string]int64 `json:"events_by_role"`
	StreamsByLastType map[string]int64 `json:"streams_by_last_event_type"`
	Paid              string           `json:"amount_paid_total"`
}

// realLog returns two years of real expense claims, and their totals; nil if they are not there.
func realLog(t *testing.T) (log string, want *totals) {
	t.Helper()
	folder := filepath.Join(root, "..", "shared", "data") // beside the repository
	log = filepath.Join(folder, "domestic-declarations.ndjson.gz")
	if _, err := os.Stat(log); err != nil {
		return "", nil
	}
	text, err := os.ReadFile(filepath.Join(folder, "domestic-declarations.expected.json"))
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return log, want
}

// TestRealLog applies the real log and compares the tables with its totals.
func TestRealLog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("applies 55,628 events")
	}
	log, want := realLog(t)
	if want == nil {
		t.Skip("the log is not there")
	}
	paidCents, err := strconv.ParseInt(strings.Replace(want.Paid, ".", "", 1), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	onEachStore(t, func(p testPlace) {
		t := p.t
		demo, _ := startAlone(t, p.args("-input", log, "-keep", "-json")...)
		demo.awaitExit(0)
		if s := demo.summary(); !s.Verified || s.Events != want.Events || s.Streams != want.Streams {
			t.Errorf("verified %v, %d events, %d streams; want true, %d, %d", s.Verified, s.Events, s.Streams,
				want.Events, want.Streams)
		}
		for sql, expected := range map[string]map[string]int64{
			"select event_type, n from {schema}.events_by_type":                   want.ByType,
			"select role, n from {schema}.events_by_role":                         want.ByRole,
			"select last_type, count(*) from {schema}.streams group by last_type": want.StreamsByLastType,
			"select 'longest', max(n) from {schema}.streams":                      {"longest": want.LongestStream},
			"select 'cents', cents from {schema}.payments":                        {"cents": paidCents},
			"select 'payments', n from {schema}.payments":                         {"payments": want.ByType[paid]},
			"select 'streams', count(*) from {schema}.streams":                    {"streams": want.Streams},
			"select 'with a time', count(headers ->> 'at') from {stored}":         {"with a time": want.Events},
		} {
			if got := p.counts(sql); !maps.Equal(got, expected) {
				t.Errorf("%s: got %v, want %v", sql, got, expected)
			}
		}
	})
}
