package millraceotel_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millraceotel"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

var (
	id           = projection.ID{Tenant: "t", Name: "p"}
	errOnPurpose = errors.New("on purpose")
)

// text is a measurement as tests expect it. Times are left out, since they differ.
func (m measurement) text() string {
	s := m.name
	if !strings.HasSuffix(m.name, "time") && !strings.HasSuffix(m.name, "duration") &&
		!strings.HasSuffix(m.name, "latency") {
		s += fmt.Sprint(" ", m.value)
	}
	for _, a := range m.attributes.ToSlice() {
		if a.Key != "millrace.projection.name" {
			s += fmt.Sprintf(" %s=%s", a.Key, a.Value.AsString())
		}
	}
	return s
}

func TestEventsOfTheObserverAreMeasured(t *testing.T) {
	telemetry, meter, _ := newTelemetry(t, millraceotel.Options{})
	o := telemetry.Observer()
	ago := time.Now().Add(-time.Minute)
	for name, test := range map[string]struct {
		call func()
		want []string
	}{
		"batch": {func() {
			o.BatchEnded(observe.Batch{Projection: id, Events: 3, Applied: 2, Bytes: 7, Live: true, Oldest: ago})
		}, []string{"millrace.batch.duration", "millrace.batch.events 3",
			"millrace.batch.queue_time", "millrace.event.applied 2",
			"millrace.event.latency", "millrace.event.size 7"}},
		"batch that catches up": {func() { o.BatchEnded(observe.Batch{Projection: id, Applied: 1, Oldest: ago}) },
			[]string{
				"millrace.batch.duration", "millrace.batch.events 0", "millrace.batch.queue_time",
				"millrace.event.applied 1", "millrace.event.size 0",
			}},
		"batch that failed": {func() {
			o.BatchEnded(observe.Batch{Projection: id, Live: true, Fault: observe.FaultOutage})
		},
			[]string{
				"millrace.batch.duration error.type=outage", "millrace.batch.events 0", "millrace.batch.queue_time",
				"millrace.event.applied 0", "millrace.event.size 0",
			}},
		"failure": {func() { o.EventFailed(observe.Failure{Projection: id, Fault: observe.FaultHandler}) },
			[]string{"millrace.event.failures 1 error.type=handler"}},
		"park": {
			func() { o.Decided(observe.Decision{Projection: id, Events: 1}) }, []string{"millrace.event.parked 1"},
		},
		"park stream": {
			func() { o.Decided(observe.Decision{Projection: id, Events: 5, Action: projection.ActionParkStream}) },
			[]string{"millrace.event.parked 5"},
		},
		"skip": {
			func() { o.Decided(observe.Decision{Projection: id, Events: 1, Action: projection.ActionSkip}) }, []string{
				"millrace.event.skipped 1",
			},
		},
		"stop": {
			func() { o.Decided(observe.Decision{Projection: id, Action: projection.ActionStop}) }, []string{
				"millrace.projection.stops 1",
			},
		},
		"replay": {
			func() { o.Replayed(observe.Replay{Projection: id}) }, []string{
				"millrace.dead_letter.replays 1 millrace.outcome=applied",
			},
		},
		"failed replay": {
			func() { o.Replayed(observe.Replay{Projection: id, Err: errOnPurpose}) }, []string{
				"millrace.dead_letter.replays 1 millrace.outcome=parked",
			},
		},
		"skipped replay": {
			func() { o.Replayed(observe.Replay{Projection: id, Err: errOnPurpose, Action: projection.ActionSkip}) },
			[]string{"millrace.dead_letter.replays 1 millrace.outcome=skipped"},
		},
		"stopped replay": {
			func() { o.Replayed(observe.Replay{Projection: id, Err: errOnPurpose, Action: projection.ActionStop}) },
			[]string{"millrace.dead_letter.replays 1 millrace.outcome=stopped"},
		},
		"breaker": {
			func() { o.BreakerChanged(observe.Breaker{Projection: id, State: projection.BreakerOpen}) }, []string{
				"millrace.breaker.changes 1 millrace.state=open",
			},
		},
		"claim": {
			func() { o.LeaseChanged(observe.Lease{Projection: id, Change: observe.LeaseClaimed}) }, []string{
				"millrace.lease.changes 1 millrace.change=claimed",
			},
		},
		"takeover": {func() {
			o.LeaseChanged(observe.Lease{Projection: id, Change: observe.LeaseClaimed, Takeover: true})
		},
			[]string{"millrace.lease.changes 1 millrace.change=taken over"}},
		"lost lease": {
			func() { o.LeaseChanged(observe.Lease{Projection: id, Change: observe.LeaseLost}) }, []string{
				"millrace.lease.changes 1 millrace.change=lost",
			},
		},
		"hold": {func() { o.MarkHeld(observe.Hold{Tenant: "t"}) }, nil},
		"end of a hold": {
			func() { o.MarkHeld(observe.Hold{Tenant: "t", Ended: true, Since: ago}) }, []string{
				"millrace.settle.wait_time",
			},
		},
		"read": {
			func() { o.EventsRead(observe.Read{Tenant: "t", Events: 3}) }, []string{
				"millrace.feed.events 3", "millrace.feed.read.duration",
			},
		},
		"woken read": {
			func() { o.EventsRead(observe.Read{Tenant: "t", Woken: true}) }, []string{
				"millrace.feed.events 0", "millrace.feed.read.duration", "millrace.feed.wake_latency",
			},
		},
		"wait": {
			func() { o.SlotWaited(observe.Wait{Slot: observe.SlotBatch}) }, []string{
				"millrace.slot.wait_time millrace.slot=batch",
			},
		},
		"connections": {
			func() { o.ConnectionsWaited(observe.ConnectionWaits{Count: 3, GivenUp: 1, Duration: time.Second}) },
			[]string{
				"millrace.connection.wait_time", "millrace.connection.waits 1 millrace.outcome=given up",
				"millrace.connection.waits 3 millrace.outcome=connected",
			},
		},
		"session": {
			func() { o.SessionChanged(observe.Session{Connected: true}) }, []string{
				"millrace.session.changes 1 millrace.change=connected",
			},
		},
		"lost session": {
			func() { o.SessionChanged(observe.Session{Again: true}) }, []string{
				"millrace.session.changes 1 millrace.change=lost",
			},
		},
		"session again": {
			func() { o.SessionChanged(observe.Session{Connected: true, Again: true}) }, []string{
				"millrace.session.changes 1 millrace.change=reconnected", "millrace.session.disconnected_time",
			},
		},
		"outage": {func() { o.DatabaseChanged(observe.Database{}) }, nil},
		"end of an outage": {
			func() { o.DatabaseChanged(observe.Database{Usable: true}) }, []string{"millrace.database.outage_time"},
		},
		"crash": {
			func() { o.ActorRestarted(observe.Restart{Kind: observe.ActorFeed}) }, []string{
				"millrace.actor.restarts 1 error.type=panic millrace.actor=feed",
			},
		},
		"stuck": {
			func() { o.ActorRestarted(observe.Restart{Kind: observe.ActorNode, Stuck: true}) }, []string{
				"millrace.actor.restarts 1 error.type=stuck millrace.actor=node",
			},
		},
	} {
		test.call()
		var got []string
		for _, m := range meter.take() {
			got = append(got, m.text())
			if name, ok := m.attributes.Value("millrace.projection.name"); ok && name.AsString() != "p" ||
				m.value > 100 {
				t.Errorf("%+v", m)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: measured %q, want %q", name, got, test.want)
		}
	}
}

// The attributes of Options are on each metric, also on those without attributes of their own.
func TestAttributesAreOnAllMetrics(t *testing.T) {
	ours := attribute.String("millrace.store", "orders")
	telemetry, meter, _ := newTelemetry(t, millraceotel.Options{Attributes: []attribute.KeyValue{ours}})
	o := telemetry.Observer()
	o.BatchEnded(observe.Batch{Projection: id, Applied: 1, Live: true, Oldest: time.Now()})
	o.EventsRead(observe.Read{Tenant: "t", Events: 3, Woken: true})
	o.ConnectionsWaited(observe.ConnectionWaits{Count: 1, Duration: time.Second})
	o.SessionChanged(observe.Session{Connected: true, Again: true})
	o.DatabaseChanged(observe.Database{Usable: true})
	measured := meter.take()
	if len(measured) < 10 {
		t.Errorf("only %d measurements", len(measured))
	}
	for _, m := range measured {
		if value, ok := m.attributes.Value(ours.Key); !ok || value != ours.Value {
			t.Errorf("%s has the attributes %v", m.name, m.attributes.ToSlice())
		}
	}
	for says, wrong := range map[string][]attribute.KeyValue{
		"must not have millrace.state": {attribute.String("millrace.state", "x")},
		"has a twice":                  {attribute.String("a", "1"), attribute.String("a", "2")},
		"[1] has no name or no value":  {ours, {}},
	} {
		if _, err := millraceotel.New(millraceotel.Options{Attributes: wrong}); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", wrong, err, says)
		}
	}
}

// Two runtimes that report the same gauges would replace each other's values.
func TestOneTelemetryWatchesOneRuntimeAtATime(t *testing.T) {
	telemetry, _, _ := newTelemetry(t, millraceotel.Options{})
	first, second := new(millrace.Runtime), new(millrace.Runtime)
	stop, err := telemetry.WatchNode(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := telemetry.WatchNode(second); err == nil || !strings.Contains(err.Error(), "Options.Attributes") {
		t.Errorf("a second runtime: %v", err)
	}
	if err := errors.Join(stop(), stop()); err != nil {
		t.Error(err)
	}
	if _, err := telemetry.WatchNode(second); err != nil {
		t.Errorf("after the first: %v", err)
	}
}

// documented is a row of the table of metrics.
type documented struct {
	instrument
	attributes string
}

// documentedMetrics reads the table of docs/monitoring.md.
func documentedMetrics(t *testing.T) map[string]documented {
	t.Helper()
	text, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]documented)
	row := regexp.MustCompile("(?m)^\\| `(millrace\\.[a-z_.]+)` \\| ([a-z]+) \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = documented{instrument{m[2], m[3], m[5]}, m[4]}
	}
	return all
}

func TestDocumentedMetricsAreTheInstruments(t *testing.T) {
	_, meter, _ := newTelemetry(t, millraceotel.Options{})
	docs := documentedMetrics(t)
	for name, made := range meter.made {
		if docs[name].instrument != made {
			t.Errorf("docs/monitoring.md says of %s\n%+v, and the instrument is\n%+v", name, docs[name].instrument,
				made)
		}
	}
	for name := range docs {
		if _, made := meter.made[name]; !made {
			t.Errorf("docs/monitoring.md has %s, which no instrument is", name)
		}
	}
}

func TestGaugesOfANodeAndOfTheDeployment(t *testing.T) {
	for _, tenants := range []bool{false, true} {
		t.Run(fmt.Sprint("tenants=", tenants), func(t *testing.T) {
			telemetry, meter, _ := newTelemetry(t, millraceotel.Options{Tenants: tenants})
			rt := running(t, telemetry)
			stopNode, err := telemetry.WatchNode(rt)
			if err != nil {
				t.Fatal(err)
			}
			stopDeployment, err := telemetry.WatchDeployment(rt.Admin)
			if err != nil {
				t.Fatal(err)
			}
			found := make(map[string]float64)
			attributes := make(map[string]map[string]bool)
			for _, m := range meter.collect(t) {
				found[m.text()] = m.value
				if attributes[m.name] == nil {
					attributes[m.name] = make(map[string]bool)
				}
				for _, a := range m.attributes.ToSlice() {
					attributes[m.name][string(a.Key)] = true
				}
			}
			of := ""
			if tenants {
				of = " millrace.tenant=default"
			}
			for _, want := range []string{
				"millrace.projection.count 1 millrace.state=live" +
					of, "millrace.projection.count 0 millrace.state=failed" + of,
				"millrace.projection.lag 0" + of, "millrace.projection.lag_max 0" + of, "millrace.projection.lag_time" +
					of,
				"millrace.projection.parked 1" + of, "millrace.breaker.count 1 millrace.state=closed" + of,
				"millrace.settle.held 0", "millrace.settle.held_time", "millrace.session.connected 1",
				"millrace.handler.abandoned 0",
				"millrace.lease.wanted 1", "millrace.lease.owned 1", "millrace.dead_letter.parked 1",
				"millrace.node.count 1 millrace.state=alive",
				"millrace.node.count 0 millrace.state=dead", "millrace.tenant.count 1 millrace.state=active",
				"millrace.lease.unowned 0 millrace.reason=not run",
				"millrace.lease.unowned 0 millrace.reason=unregistered",
				"millrace.breaker.count 0 millrace.state=open" + of,
			} {
				if _, ok := found[want]; !ok {
					t.Errorf("%q was not observed: %v", want, found)
				}
			}
			docs := documentedMetrics(t)
			for name, made := range meter.made {
				if made.kind == "gauge" && attributes[name] == nil {
					t.Errorf("%s was not observed", name)
				}
				for key := range attributes[name] {
					if key != "millrace.tenant" && !strings.Contains(docs[name].attributes, "`"+key+"`") {
						t.Errorf("docs/monitoring.md names the attributes %q of %s, which has %s",
							docs[name].attributes, name, key)
					}
				}
			}
			if err := errors.Join(stopNode(), stopDeployment()); err != nil {
				t.Error(err)
			}
		})
	}
}

func parks(context.Context, *sql.Tx, event.Envelope) error { return projection.Park(errOnPurpose) }

// running runs a projection with one parked event until the test ends.
func running(t *testing.T, telemetry *millraceotel.Telemetry) *millrace.Runtime {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), t.TempDir()+"/events.db", sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	result, err := store.Append(t.Context(), "s", event.Any, event.Event{Type: "a"})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := millrace.New(millrace.Config{
		Store: store, Observer: telemetry.Observer(), Middleware: []millrace.Middleware{telemetry.Handle},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Register(millrace.Projection{Name: "p", Handler: sqlitestore.Each(parks),
		Breaker: projection.BreakerPolicy{IsOutage: func(error) bool { return false }}}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := rt.WaitFor(t.Context(), projection.ID{Name: "p"}, result.Positions[0]); err != nil {
		t.Fatal(err)
	}
	return rt
}

// A nil runtime would end the process in the first collection.
func TestNothingToWatchIsAnError(t *testing.T) {
	telemetry, err := millraceotel.New(millraceotel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := telemetry.WatchNode(nil); err == nil {
		t.Error("a nil runtime is watched")
	}
	if _, err := telemetry.WatchDeployment(nil); err == nil {
		t.Error("a nil Admin is watched")
	}
}
