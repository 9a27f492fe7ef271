package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// scrape returns the metrics as Prometheus reads them.
func scrape(t *testing.T, s *shop) string {
	t.Helper()
	answer := httptest.NewRecorder()
	s.metrics.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// families returns the names of the metrics of a scrape, with their types. A histogram has the names of its parts.
func families(text string) map[string]string {
	found := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		found[m[1]] = m[2]
		if m[2] == "histogram" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				found[m[1]+part] = "histogram"
			}
		}
	}
	return found
}

// documented returns the names in Prometheus of the metrics in docs/monitoring.md, with their kinds, by its rule.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(millrace\\.[a-z_.]+)` \\| ([a-z]+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		name := strings.ReplaceAll(m[1], ".", "_") + map[string]string{"s": "_seconds", "By": "_bytes"}[m[3]]
		if m[2] == "counter" {
			name += "_total"
		}
		names[name] = m[2]
	}
	if len(names) < 30 {
		t.Fatalf("only %d metrics are documented", len(names))
	}
	return names
}

// busy returns a shop in which everything has happened that metrics count, as far as the program can make it happen.
// The rest is reported to the observer, since outages and crashes take long.
func busy(t *testing.T, o options) *shop {
	t.Helper()
	s := open(t, o)
	var last event.Appended
	for _, cents := range []int64{1, -1, 2} {
		var err error
		last, err = s.place(t.Context(), OrderPlaced{Customer: "c", Cents: cents})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"confirmations", "orders"} {
		if err := s.runtime.WaitFor(t.Context(), projection.ID{Name: name}, last.Positions[0]); err != nil {
			t.Fatal(err)
		}
	}
	rare, id := s.telemetry.Observer(), projection.ID{Tenant: projection.DefaultTenant, Name: "mails"}
	rare.EventFailed(observe.Failure{Projection: id, Fault: observe.FaultHandler})
	rare.Decided(observe.Decision{Projection: id, Action: projection.ActionSkip, Events: 1})
	rare.Decided(observe.Decision{Projection: id, Action: projection.ActionStop})
	rare.Replayed(observe.Replay{Projection: id})
	rare.BreakerChanged(observe.Breaker{Projection: id, State: projection.BreakerOpen})
	rare.LeaseChanged(observe.Lease{Projection: id, Change: observe.LeaseClaimed, Takeover: true})
	rare.BatchEnded(observe.Batch{Projection: id, Fault: observe.FaultHandler})
	rare.MarkHeld(observe.Hold{Tenant: id.Tenant, Ended: true, Since: time.Now()})
	rare.SlotWaited(observe.Wait{Slot: observe.SlotBatch})
	rare.ConnectionsWaited(observe.ConnectionWaits{Count: 1, GivenUp: 1, Duration: time.Second})
	rare.SessionChanged(observe.Session{Connected: true, Again: true})
	rare.DatabaseChanged(observe.Database{Usable: true})
	rare.ActorRestarted(observe.Restart{Kind: observe.ActorFeed})
	return s
}

func TestScrapeHasEveryDocumentedMetric(t *testing.T) {
	onEachStore(t, func(t *testing.T, o options) {
		text := scrape(t, busy(t, o))
		found := families(text)
		for name, kind := range documented(t) {
			if found[name] != kind {
				t.Errorf("%s is documented as a %s, and the scrape has it as %q", name, kind, found[name])
			}
		}
		for name := range found {
			base := strings.NewReplacer("_bucket", "", "_sum", "", "_count", "").Replace(name)
			if _, ok := documented(t)[name]; strings.HasPrefix(name, "millrace_") && !ok &&
				documented(t)[base] != "histogram" {
				t.Errorf("%s is not documented", name)
			}
		}
		for _, line := range []string{
			`millrace_event_applied_total{millrace_projection_name="confirmations"} 2`,
			`millrace_event_applied_total{millrace_projection_name="orders"} 3`,
			`millrace_event_parked_total{millrace_projection_name="confirmations"} 1`,
			`millrace_projection_parked{millrace_projection_name="confirmations"} 1`,
			`millrace_projection_count{millrace_projection_name="orders",millrace_state="live"} 1`,
			`millrace_projection_lag{millrace_projection_name="orders"} 0`,
			`millrace_session_connected 1`,
			`millrace_lease_owned 3`,
			`millrace_dead_letter_parked 1`,
		} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("the scrape has no line %s:\n%s", line, grep(text, line[:strings.IndexAny(line, "{ ")]))
			}
		}
		for _, label := range regexp.MustCompile(`millrace_tenant=|stream=`).FindAllString(text, -1) {
			t.Errorf("a label is not bounded: %s", label)
		}
	})
}

// grep returns the lines of a text that begin with a prefix.
func grep(text, prefix string) (found string) {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, prefix) {
			found += fmt.Sprintln(line)
		}
	}
	return found
}

// Two runtimes of one process report to one provider. Without an attribute the gauges of one would replace those of the
// other.
func TestTwoRuntimesOfAProcessAreBothSeen(t *testing.T) {
	meters, metrics, err := newMeters()
	if err != nil {
		t.Fatal(err)
	}
	placed := map[string]int{"east": 3, "west": 5}
	for name, o := range map[string]options{"east": {file: t.TempDir() + "/shop.db"},
		"west": {databaseURL: pgtest.Database(t)}} {
		o.name, o.meters = name, meters
		s := open(t, o)
		var last event.Appended
		for range placed[name] {
			last, err = s.place(t.Context(), OrderPlaced{Customer: "c", Cents: 1})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.runtime.WaitFor(t.Context(), projection.ID{Name: "orders"}, last.Positions[0]); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = meters.Shutdown(context.WithoutCancel(t.Context())) }()
	}
	text := scrape(t, &shop{metrics: metrics})
	for name, n := range placed {
		for _, line := range []string{
			fmt.Sprintf(`millrace_event_applied_total{millrace_projection_name="orders",millrace_store="%s"} %d`, name,
				n),
			fmt.Sprintf(`millrace_batch_duration_seconds_count{millrace_projection_name="orders",millrace_store="%s"} `,
				name),
			fmt.Sprintf(`millrace_projection_count{millrace_projection_name="orders",millrace_state="live",millrace_store="%s"} 1`, name),
			fmt.Sprintf(`millrace_session_connected{millrace_store="%s"} 1`, name),
			fmt.Sprintf(`millrace_lease_owned{millrace_store="%s"} 3`, name),
		} {
			if !strings.Contains(text, "\n"+line) {
				t.Errorf("the scrape has no line %s:\n%s", line, grep(text, line[:strings.IndexAny(line, "{ ")]))
			}
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "millrace_") && !strings.Contains(line, "millrace_store=") {
			t.Errorf("a series of both: %s", line)
		}
	}
}

func TestFiguresOfTheNodeAreThereWhileTheDatabaseIsDown(t *testing.T) {
	server := pgtest.Private(t, pgtest.Options{})
	s := busy(t, options{databaseURL: server.DSN("postgres")})
	before := families(scrape(t, s))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var text string
	for text = scrape(t, s); !strings.Contains(text, "\nmillrace_session_connected 0\n"); text = scrape(t, s) {
		if ctx.Err() != nil {
			t.Fatal("the lost session is not shown:", grep(text, "millrace_session"))
		}
	}
	during := families(text)
	for name := range before {
		absent := strings.HasPrefix(name, "millrace_lease_") && name != "millrace_lease_changes_total" ||
			strings.HasPrefix(name, "millrace_node_") ||
			strings.HasPrefix(name, "millrace_tenant_") || name == "millrace_dead_letter_parked" ||
			strings.HasSuffix(name, "_oldest_seconds") ||
			name == "millrace_database_oldest_snapshot_seconds"
		if (during[name] == "") != absent {
			t.Errorf("%s is absent: %v, want %v", name, during[name] == "", absent)
		}
	}
	if err := server.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for text = scrape(t, s); !strings.Contains(text, "\nmillrace_session_connected 1\n") ||
		!strings.Contains(text, "\nmillrace_lease_owned 3\n"); text = scrape(t, s) {
		if ctx.Err() != nil {
			t.Fatal("the session is not restored:", grep(text, "millrace_session"))
		}
	}
}
