package admin_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

var updateGolden = flag.Bool("update", false, "write the golden files")

// at is a time with all digits that the stores keep.
func at(seconds int) time.Time { return time.Date(2026, 1, 2, 3, 4, seconds, 123456000, time.UTC) }

// fullStatus has a value in each field, and the least that a projection has.
func fullStatus() admin.Status {
	return admin.Status{
		Node: "6f1f", At: at(0),
		Tenants: []admin.TenantStatus{
			{
				Tenant: "acme", State: tenancy.Active, Head: 120, Mark: 100,
				Held: &admin.HeldMark{Below: 110, Since: at(1), Holders: []string{"backend 7"}},
			},
			{Tenant: "gone", Reason: "unknown tenant"},
		},
		Projections: []admin.ProjectionStatus{
			{ID: projection.ID{Tenant: "acme", Name: "totals", Partition: 2}, State: admin.StateWaiting, Reason: "bad",
				Owner: "6f1f", OwnerName: "web-3:4711",
				Epoch: 4, NotOwned: 90 * time.Second, Checkpoint: 80, Position: 90, Mark: 100, Head: 120, Behind: 30,
				Lag: 1500 * time.Millisecond, Rate: 12.5, Applied: 7,
				Parked: 1, OldestParked: at(2), Skipped: 3, FailingPosition: 91, Attempts: 2, NextAttempt: at(3),
				LastError: "bad", LastErrorAt: at(4), Breaker: projection.BreakerClosed,
				Rebuild: &admin.RebuildStatus{Since: at(5), From: 0, To: 120, Done: 0.75, Left: 20 * time.Second},
				Operation: &admin.OperationStatus{
					Number: 3, Kind: "rebuild", RequestedAt: at(6), StartedAt: at(7), Node: "6f1f", Holds: true,
					Error: "lock timeout",
				}},
			{ID: projection.ID{Tenant: "gone", Name: "totals"}, State: admin.StateNotOwned},
		},
		Next: "bmV4dA",
	}
}

func fullSummary() admin.Summary {
	full := fullStatus()
	return admin.Summary{
		Node: "6f1f", At: at(0),
		Session: admin.SessionStatus{
			Connected: true, Since: at(5), HeartbeatSent: at(6), Pooled: true, StorePooled: true, Reason: "pooled",
		},
		Nodes: []admin.NodeStatus{
			{ID: "6f1f", Name: "web-3:4711", Alive: true, Draining: true, Leases: 2, Registered: []string{"totals"},
				Tenants: []string{"acme"},
				Filters: map[string][]string{"totals": {"a*"}}, StartedAt: at(7), Silent: 250 * time.Millisecond,
				States: map[admin.State]int{admin.StateLive: 2}},
			{ID: "7a2a", StartedAt: at(8), Silent: time.Hour},
		},
		Tenants: map[tenancy.State]int{tenancy.Active: 2},
		States:  map[admin.State]int{admin.StateLive: 2, admin.StateMissingObject: 1}, NotOwned: 1, Unregistered: 2,
		Hour: []admin.Minute{{At: at(0), Applied: 100, Behind: 30, Lag: 90 * time.Second}, {At: at(1)}},
		Worst: []admin.ProjectionHour{
			{ID: full.Projections[0].ID, Minutes: []admin.Minute{{At: at(0), Behind: 30, Lag: 90 * time.Second}}},
		},
		Lagging:        full.Projections[:1],
		LaggingTenants: []admin.TenantLag{{Tenant: "acme", Behind: 30, Worst: full.Projections[0].ID, Lagging: 2}},
		Held:           full.Tenants[:1],
		Standing:       []admin.Standstill{{ID: full.Projections[0].ID, Since: at(1), Reason: "a page cannot be read"}},
		StandingCount:  3, Parked: 1, OldestParked: at(2), OldestParkedIn: full.Projections[0].ID,
		OldestSnapshot: 90 * time.Second, OldestSnapshotPID: 4242, Abandoned: 1, Stuck: 1,
	}
}

func fullDetail() admin.Detail {
	return admin.Detail{At: at(0), Status: fullStatus().Projections[0],
		Tenures: []admin.Tenure{{
			Partition: 2, Node: "6f1f", NodeName: "web-3:4711", Epoch: 4, Began: at(1), Source: admin.SourceRuntime,
		},
			{Partition: 2, Node: "7a2a", Epoch: 3, Began: at(0), Ended: at(1), Source: admin.SourceHeartbeat},
			{Node: "7a2a", Epoch: 2, Source: admin.SourceDatabase}},
		Batches: []admin.Batch{{
			Partition: 2, Node: "6f1f", Ended: at(2), Duration: 1500 * time.Millisecond, Events: 7, Fault: "handler",
			Source: admin.SourceRuntime,
		},
			{Node: "6f1f", Ended: at(1), Events: 1, Source: admin.SourceHeartbeat}},
		Minutes: []admin.Minute{{At: at(0), Applied: 1, Behind: 2, Lag: time.Second}},
	}
}

// The JSON is part of the interface: commands and dashboards read it.
func TestJSONOfStatusIsStableAndRoundTrips(t *testing.T) {
	t.Parallel()
	letter := projection.DeadLetter{ID: 5, Projection: projection.ID{Tenant: "acme", Name: "totals"}, Position: 91,
		Stream: "s", Version: 3, Type: "Paid", BlockedByStream: true,
		State: projection.DeadLetterParked, Error: "bad", Stack: "main.go:1", Attempts: 2, Replays: 1,
		FirstFailedAt: at(1), LastFailedAt: at(2), EndedAt: at(3)}
	envelope := event.Envelope{Position: 91, Stream: "s", Version: 3, Type: "Paid",
		Body: json.RawMessage(`{"amount":1.50}`), CausationID: "c", CorrelationID: "r",
		RawHeaders: json.RawMessage(`{"by":"x"}`), Time: at(1)}
	for name, value := range map[string]any{
		"status": fullStatus(), "summary": fullSummary(), "detail": fullDetail(),
		"detail_empty": admin.Detail{Tenures: []admin.Tenure{}, Batches: []admin.Batch{}, Minutes: []admin.Minute{}},
		"dead_letter":  letter, "event": envelope,
		"command_result": projection.CommandResult{Command: 1, Done: 2, Failed: 3},
		"status_empty":   admin.Status{Tenants: []admin.TenantStatus{}, Projections: []admin.ProjectionStatus{}},
		"summary_empty": admin.Summary{
			Nodes: []admin.NodeStatus{}, Tenants: map[tenancy.State]int{}, States: map[admin.State]int{},
			Lagging: []admin.ProjectionStatus{}, LaggingTenants: []admin.TenantLag{}, Held: []admin.TenantStatus{},
			Standing: []admin.Standstill{}, Hour: []admin.Minute{}, Worst: []admin.ProjectionHour{},
		},
	} {
		encoded, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		file := "testdata/json/" + name + ".json"
		if *updateGolden {
			if err := os.WriteFile(file, append(encoded, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.TrimSpace(golden), encoded) {
			t.Errorf("%s is not as in %s (write it by -update):\n%s", name, file, encoded)
		}
		decoded := reflect.New(reflect.TypeOf(value))
		if err := json.Unmarshal(golden, decoded.Interface()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if again, ok := decoded.Elem().Interface().(event.Envelope); ok {
			var body bytes.Buffer // the golden file is indented
			if err := json.Compact(&body, again.Body); err != nil {
				t.Error(err)
			}
			again.Body, again.RawHeaders = body.Bytes(), envelope.RawHeaders
			decoded.Elem().Set(reflect.ValueOf(again))
		}
		if !reflect.DeepEqual(decoded.Elem().Interface(), value) {
			t.Errorf("%s became\n%+v, want\n%+v", name, decoded.Elem().Interface(), value)
		}
	}
}

// A field that is added later must have a tag, and durations must be texts.
func TestFieldsOfStatusHaveNamesInJSON(t *testing.T) {
	t.Parallel()
	var check func(of reflect.Type)
	seen := make(map[reflect.Type]bool)
	check = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			check(of.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[of] || of == reflect.TypeFor[time.Time]() {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name != strings.ToLower(name[:1])+name[1:] || strings.ContainsAny(name, "_-") {
				t.Errorf("%s.%s has the name %q in JSON", of, f.Name, name)
			}
			check(f.Type)
			if f.Type == reflect.TypeFor[time.Duration]() {
				set := reflect.New(of)
				set.Elem().Field(i).SetInt(int64(90 * time.Second))
				if encoded, err := json.Marshal(set.Interface()); err != nil ||
					!strings.Contains(string(encoded), `"`+name+`":"1m30s"`) {
					t.Errorf("%s.%s is no text: %s, %v", of, f.Name, encoded, err)
				}
			}
		}
	}
	check(reflect.TypeFor[admin.Status]())
	check(reflect.TypeFor[admin.Summary]())
	check(reflect.TypeFor[admin.Detail]())
	if len(seen) < 8 {
		t.Errorf("only %d types were checked", len(seen))
	}
}

func TestJSONOfADurationThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"lag":"soon"}`, `{"lag":90}`} {
		var p admin.ProjectionStatus
		if err := json.Unmarshal([]byte(text), &p); err == nil {
			t.Errorf("%s became %+v", text, p)
		}
	}
}
