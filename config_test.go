package millrace_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// stubStore is a store that is asked only what New and Register ask.
type stubStore struct {
	store.Driver
	connections int
}

func (s stubStore) Engine() store.Driver                                          { return s }
func (stubStore) Name() string                                                    { return "*pgstore.Store" }
func (stubStore) TxType() reflect.Type                                            { return reflect.TypeFor[pgx.Tx]() }
func (s stubStore) DefaultBatches() int                                           { return 0 }
func (stubStore) EventTypes() *upcast.Graph                                       { return nil }
func (s stubStore) Connections() int                                              { return s.connections }
func (stubStore) Apply(handler.Handler, engine.ApplyOptions) engine.ApplyFunc     { return nil }
func (stubStore) Opening(engine.ApplyOptions) func(engine.Lease) engine.Opening   { return nil }
func (stubStore) Shares(handler.Handler) bool                                     { return false }
func (stubStore) Deliver(handler.Handler, engine.DeliverOptions) engine.ApplyFunc { return nil }

func (stubStore) ValidTenant(name string) error {
	if name == "" {
		return errors.New("tenant name must not be empty")
	}
	return nil
}

func TestBadConfigurationIsRefusedNamingTheField(t *testing.T) {
	t.Parallel()
	store := stubStore{connections: 4}
	for message, config := range map[string]millrace.Config{
		"Config.Store must be set": {},
		"Config.FailureDetection (6s) must be at most Config.LeaseDuration (5s)": {
			Store: store, FailureDetection: 6 * time.Second,
		},
		"Config.FailureDetection must be at least 20ms: 10ms": {
			Store: store, FailureDetection: 10 * time.Millisecond,
		},
		"Config.PollInterval must be at least 1ms: -1s": {
			Store: store, PollInterval: -time.Second,
		},
		"Config.GracePeriod must be at least 1ms: -1ns": {
			Store: store, GracePeriod: -1,
		},
		"Config.MaxBatches (4) must be less than the connections of the store's pool (4)": {
			Store: store, MaxBatches: 4,
		},
		"Config.Middleware must not contain nil: middleware 1": {
			Store: store, Middleware: []millrace.Middleware{nil},
		},
		"Config.MaxBatches must not be negative: -1": {
			Store: store, MaxBatches: -1,
		},
		"Config.MaxBatchesPerTenant must not be negative: -1": {
			Store: store, MaxBatchesPerTenant: -1,
		},
		"Config.MaxDeliveries must not be negative: -1": {
			Store: store, MaxDeliveries: -1,
		},
		"Config.GracePeriod must be at most 8760h0m0s: 2562047h47m16.854775807s": {
			Store: store, GracePeriod: math.MaxInt64,
		},
		"Config.Tenants: tenant": {
			Store: store, Tenants: []string{""},
		},
		`Config.Tenants must not name a tenant twice: "a"`: {
			Store: store, Tenants: []string{"a", "a"},
		},
		"Config.NodeName must be at most 200 bytes: ": {
			Store: store, NodeName: strings.Repeat("n", 201),
		},
		`Config.NodeName must not contain control characters: "a\tb"`: {
			Store: store, NodeName: "a\tb",
		},
		`Config.NodeName "\xff" is not valid UTF-8`: {
			Store: store, NodeName: "\xff",
		},
	} {
		if _, err := millrace.New(config); err == nil || !strings.Contains(err.Error(), message) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, message)
		}
	}
}

func TestBadProjectionIsRefusedNamingTheField(t *testing.T) {
	t.Parallel()
	rt, err := millrace.New(millrace.Config{Store: stubStore{}})
	if err != nil {
		t.Fatal(err)
	}
	handler := pgstore.Batch(func(context.Context, pgx.Tx, []event.Envelope) error { return nil })
	deliver := millrace.DeliverEach(func(context.Context, millrace.Delivered) error { return nil })
	countsAll := func(error) bool { return true }
	hook := pgstore.Hook(func(context.Context, pgx.Tx) error { return nil })
	for message, p := range map[string]millrace.Projection{
		"Projection.Name": {Handler: handler},
		"Projection.Name must be at most 100 bytes: ": {
			Name: strings.Repeat("n", 101), Handler: handler,
		},
		"Projection.Name must not end in @ and digits": {
			Name: "p@2", Handler: handler,
		},
		"how versions are stored (see Projection.Version): \"p@0\"": {
			Name: "p@0", Handler: handler, Version: 2,
		},
		"Projection.Name with its version must be at most 100 bytes: ": {
			Name: strings.Repeat("n", 99), Handler: handler, Version: 2,
		},
		`projection "p": Projection.Version must be from 0 to 9999: -1`: {
			Name: "p", Handler: handler, Version: -1,
		},
		"Projection.Version must be from 0 to 9999: 10000": {
			Name: "p", Handler: handler, Version: 10_000,
		},
		`projection "p@2": Projection.Version must be 0 or 1: version 2 would deliver every event again`: {
			Name: "p", Handler: deliver, Version: 2,
		},
		`projection "p": Projection.Swap must not be set: it is for Projection.Version from 2 on, which is 1`: {
			Name: "p", Handler: handler, Version: 1, Swap: hook,
		},
		"Projection.Drop must not be set: it is for Projection.Version from 2 on, which is 0": {
			Name: "p", Handler: handler, Drop: hook,
		},
		"Projection.Swap takes *sql.Tx, but *pgstore.Store gives pgx.Tx": {
			Name: "p", Handler: handler, Version: 2,
			Swap: sqlitestore.Hook(func(context.Context, *sql.Tx) error { return nil }),
		},
		`Projection.RenamedFrom must differ from Projection.Name: "p"`: {
			Name: "p", RenamedFrom: "p", Handler: handler,
		},
		"Projection.RenamedFrom is no name of a projection: Projection.Name must not end in @": {
			Name: "p", RenamedFrom: "q@2", Handler: handler,
		},
		"Projection.RenamedFrom is no name of a projection: Projection.Name must be at most 100": {
			Name: "p", RenamedFrom: strings.Repeat("n", 101), Handler: handler,
		},
		"Projection.Start must have at most one of End, Position and Time": {
			Name: "p", Start: projection.Start{End: true, Position: 2}, Handler: handler,
		},
		"Projection.Start.Position must not be negative: -2": {
			Name: "p", Start: projection.Start{Position: -2}, Handler: handler,
		},
		"UTF-8":                          {Name: "\xff", Handler: handler},
		"Projection.Handler must be set": {Name: "p"},
		`projection "p": Projection.MaxEvents must be from 1 to 32767: -1`: {
			Name: "p", Handler: handler, MaxEvents: -1,
		},
		`projection "p": Projection.Partitions must be from 1 to 1024: -1`: {
			Name: "p", Handler: handler, Partitions: -1,
		},
		`projection "p": Projection.Partitions must be from 1 to 1024: 1025`: {
			Name: "p", Handler: handler, Partitions: 1025,
		},
		`projection "p": Projection.MaxBytes must not be negative: -1`: {
			Name: "p", Handler: handler, MaxBytes: -1,
		},
		`projection "p": Projection.Weight must be from 1 to 100: -1`: {Name: "p", Handler: handler, Weight: -1},
		`projection "p": Projection.Weight must be from 1 to 100: 101`: {
			Name: "p", Handler: handler, Weight: 101,
		},
		`projection "p": Projection.Timeout must be at least 10ms: -1ns`: {
			Name: "p", Handler: handler, Timeout: -1,
		},
		"Projection.Timeout must be at most 8760h0m0s: ": {
			Name: "p", Handler: handler, Timeout: math.MaxInt64,
		},
		"Projection.Retry.Cap must be at most 8760h0m0s: ": {
			Name: "p", Handler: handler, Retry: projection.RetryPolicy{Cap: math.MaxInt64},
		},
		"Projection.Replay.Cap must be at most 8760h0m0s: ": {
			Name: "p", Handler: handler, Replay: projection.ReplayPolicy{Interval: time.Minute, Cap: math.MaxInt64},
		},
		"Projection.Breaker.OpenFor must be at most 8760h0m0s: ": {
			Name: "p", Handler: handler, Breaker: projection.BreakerPolicy{IsOutage: countsAll, OpenFor: math.MaxInt64},
		},
		"must not be empty": {Name: "p", Handler: handler, Types: []string{""}},
		"Projection.Tenants must not contain an empty entry; the default tenant is named default": {
			Name: "p", Handler: handler, Tenants: []string{"a", ""},
		},
		`Projection.Tenants: "[a" is not a pattern of path.Match; ExactTenant returns the pattern for a name`: {
			Name: "p", Handler: handler, Tenants: []string{"[a"},
		},
		"Retry.Base must not be negative: -1ns": {
			Name: "p", Handler: handler, Retry: projection.RetryPolicy{Base: -1},
		},
		"Retry.Cap (1ns) must be at least Projection.Retry.Base (2ns)": {
			Name: "p", Handler: handler, Retry: projection.RetryPolicy{Base: 2, Cap: 1},
		},
		"Retry.Factor must be at least 1: 0.5": {
			Name: "p", Handler: handler, Retry: projection.RetryPolicy{Factor: 0.5},
		},
		"Projection.OnFailure must be an action: 99": {
			Name: "p", Handler: handler, OnFailure: 99,
		},
		"Projection.AsyncCommit must be false: a delivery has no transaction": {
			Name: "p", Handler: deliver, AsyncCommit: true,
		},
		"Replay.Error": {
			Name: "p", Handler: handler, Replay: projection.ReplayPolicy{Interval: time.Minute, Error: "a\x00b"},
		},
		"Replay.Interval must not be negative: -1ns": {
			Name: "p", Handler: handler, Replay: projection.ReplayPolicy{Interval: -1},
		},
		"Replay.Factor must be from 1 to 100: 0.5": {
			Name: "p", Handler: handler, Replay: projection.ReplayPolicy{Interval: time.Minute, Factor: 0.5},
		},
		"Replay.Cap (1s) must be at least Projection.Replay.Interval (1m0s)": {
			Name: "p", Handler: handler, Replay: projection.ReplayPolicy{Interval: time.Minute, Cap: time.Second},
		},
		"Projection.MaxFailureShare must be at most 1: 1.5": {
			Name: "p", Handler: handler, MaxFailureShare: 1.5,
		},
		"Retry.Jitter must be from 0 to 1: 1.5": {
			Name: "p", Handler: handler, Retry: projection.RetryPolicy{Jitter: 1.5},
		},
		"Projection.MissingObjectTimeout must not be negative: -2ns": {
			Name: "p", Handler: handler, MissingObjectTimeout: -2,
		},
		"Breaker.IsOutage must be set if": {
			Name: "p", Handler: handler, Breaker: projection.BreakerPolicy{OpenFor: time.Minute},
		},
		"Breaker.OpenFor must not be negative: -1ns": {
			Name: "p", Handler: handler, Breaker: projection.BreakerPolicy{IsOutage: countsAll, OpenFor: -1},
		},
	} {
		if err := rt.Register(p); err == nil || !strings.Contains(err.Error(), message) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, message)
		}
	}
}

func TestStatesAreThePhasesOfTheMachine(t *testing.T) {
	t.Parallel()
	for public, phase := range map[admin.State]machine.Phase{
		admin.StateStarting: machine.Starting, admin.StateCatchUp: machine.CatchUp, admin.StateLive: machine.Live,
		admin.StateWaiting: machine.Waiting, admin.StateFailed: machine.Failed,
		admin.StateMissingObject: machine.MissingObject,
	} {
		if string(public) != string(phase) {
			t.Errorf("%q is %q", public, phase)
		}
	}
}

func TestRenamesOfRegisteredProjectionsMustNotContradictEachOther(t *testing.T) {
	t.Parallel()
	handler := pgstore.Batch(func(context.Context, pgx.Tx, []event.Envelope) error { return nil })
	for message, list := range map[string][]millrace.Projection{
		"": {
			{Name: "a", RenamedFrom: "b"}, {Name: "a", Version: 2, RenamedFrom: "b"}, {Name: "c"},
			{Name: "d", RenamedFrom: "e"},
		},
		`Projection.RenamedFrom of "a" must not be registered: "b"`: {
			{Name: "a", RenamedFrom: "b"}, {Name: "b", Version: 2},
		},
		`Projection.RenamedFrom of "b" must not be registered: "a"`: {
			{Name: "a"}, {Name: "b", RenamedFrom: "a"},
		},
		`Projection.RenamedFrom must differ for "a" and "b": "c"`: {
			{Name: "b", RenamedFrom: "c"}, {Name: "a", RenamedFrom: "c"},
		},
		`Projection.RenamedFrom must be the same for all versions of "a": "b" and ""`: {
			{Name: "a", RenamedFrom: "b"}, {Name: "a", Version: 2},
		},
	} {
		rt, err := millrace.New(millrace.Config{Store: stubStore{}})
		if err != nil {
			t.Fatal(err)
		}
		// One after the other, since a later call must not contradict an earlier one either.
		for _, p := range list {
			p.Handler = handler
			if err == nil {
				err = rt.Register(p)
			}
		}
		if message == "" && err != nil || message != "" && (err == nil || !strings.Contains(err.Error(), message)) {
			t.Errorf("%v, want %q", err, message)
		}
	}
}
