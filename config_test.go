package millrace_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

func TestBadConfigurationIsRefusedNamingTheField(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "4")
	for message, config := range map[string]millrace.Config{
		"Config.Store must be set":                                                           {},
		"Config.HeartbeatInterval must be at least 1ms: -1ns":                                {Store: b.store, HeartbeatInterval: -1},
		"Config.HeartbeatInterval (2s) must be at most a third of Config.LeaseDuration (5s)": {Store: b.store, HeartbeatInterval: 2 * time.Second},
		"Config.FailureDetection (6s) must be at most Config.LeaseDuration (5s)":             {Store: b.store, FailureDetection: 6 * time.Second},
		"Config.FailureDetection must be at least 20ms: 10ms":                                {Store: b.store, FailureDetection: 10 * time.Millisecond},
		"Config.HeartbeatInterval (1s) must be at most a third of Config.LeaseDuration (2s)": {Store: b.store, LeaseDuration: 2 * time.Second},
		"Config.PollInterval must be at least 1ms: -1s":                                      {Store: b.store, PollInterval: -time.Second},
		"Config.ReconcileInterval must be at least 1ms: 1µs":                                 {Store: b.store, ReconcileInterval: time.Microsecond},
		"Config.AdvanceInterval must be at least 1ms: -1ns":                                  {Store: b.store, AdvanceInterval: -1},
		"Config.GracePeriod must be at least 1ms: -1ns":                                      {Store: b.store, GracePeriod: -1},
		"Config.QueryTimeout must be at least 1ms: -1ns":                                     {Store: b.store, QueryTimeout: -1},
		"Config.MaxBatches (4) must be less than the connections of the store's pool (4)":    {Store: b.store, MaxBatches: 4},
		"Config.MaxBatches must not be negative: -1":                                         {Store: b.store, MaxBatches: -1},
		"Config.MaxBatchesPerTenant must not be negative: -1":                                {Store: b.store, MaxBatchesPerTenant: -1},
		"Config.MaxDeliveries must not be negative: -1":                                      {Store: b.store, MaxDeliveries: -1},
		"Config.Tenants: tenant":                                                             {Store: b.store, Tenants: []string{""}},
		`Config.Tenants must not name a tenant twice: "a"`:                                   {Store: b.store, Tenants: []string{"a", "a"}},
	} {
		if _, err := millrace.New(config); err == nil || !strings.Contains(err.Error(), message) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, message)
		}
	}
}

func TestBadProjectionIsRefusedNamingTheField(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{})
	handler := record("p")
	countsAll := func(error) bool { return true }
	for message, p := range map[string]millrace.Projection{
		"Projection.Name": {Handler: pgstore.Batch(handler)},
		"Projection.Name must be at most 100 bytes: ": {Name: strings.Repeat("n", 101), Handler: pgstore.Batch(handler)},
		"UTF-8":                          {Name: "\xff", Handler: pgstore.Batch(handler)},
		"Projection.Handler must be set": {Name: "p"},
		`projection "p": Projection.MaxEvents must be from 1 to 32767: -1`: {Name: "p", Handler: pgstore.Batch(handler), MaxEvents: -1},
		`projection "p": Projection.MaxBytes must not be negative: -1`:     {Name: "p", Handler: pgstore.Batch(handler), MaxBytes: -1},
		`projection "p": Projection.Timeout must be at least 10ms: -1ns`:   {Name: "p", Handler: pgstore.Batch(handler), Timeout: -1},
		"must not be empty":                                                   {Name: "p", Handler: pgstore.Batch(handler), Types: []string{""}},
		"Retry.Base must not be negative: -1ns":                               {Name: "p", Handler: pgstore.Batch(handler), Retry: projection.RetryPolicy{Base: -1}},
		"Retry.Cap (1ns) must be at least Projection.Retry.Base (2ns)":        {Name: "p", Handler: pgstore.Batch(handler), Retry: projection.RetryPolicy{Base: 2, Cap: 1}},
		"Retry.Factor must be at least 1: 0.5":                                {Name: "p", Handler: pgstore.Batch(handler), Retry: projection.RetryPolicy{Factor: 0.5}},
		"Projection.OnFailure must be an action: 99":                          {Name: "p", Handler: pgstore.Batch(handler), OnFailure: 99},
		"Projection.AsyncCommit must be false: a delivery has no transaction": {Name: "p", Handler: millrace.DeliverEach(freely), AsyncCommit: true},
		"Replay.Error": {Name: "p", Handler: pgstore.Batch(handler), Replay: projection.ReplayPolicy{Interval: time.Minute, Error: "a\x00b"}},
		"Replay.Interval must not be negative: -1ns":                         {Name: "p", Handler: pgstore.Batch(handler), Replay: projection.ReplayPolicy{Interval: -1}},
		"Replay.Factor must be from 1 to 100: 0.5":                           {Name: "p", Handler: pgstore.Batch(handler), Replay: projection.ReplayPolicy{Interval: time.Minute, Factor: 0.5}},
		"Replay.Cap (1s) must be at least Projection.Replay.Interval (1m0s)": {Name: "p", Handler: pgstore.Batch(handler), Replay: projection.ReplayPolicy{Interval: time.Minute, Cap: time.Second}},
		"Projection.MaxFailureShare must be at most 1: 1.5":                  {Name: "p", Handler: pgstore.Batch(handler), MaxFailureShare: 1.5},
		"Retry.Jitter must be at most 1: 1.5":                                {Name: "p", Handler: pgstore.Batch(handler), Retry: projection.RetryPolicy{Jitter: 1.5}},
		"Breaker.IsOutage must be set if":                                    {Name: "p", Handler: pgstore.Batch(handler), Breaker: projection.BreakerPolicy{OpenFor: time.Minute}},
		"Breaker.OpenFor must not be negative: -1ns":                         {Name: "p", Handler: pgstore.Batch(handler), Breaker: projection.BreakerPolicy{IsOutage: countsAll, OpenFor: -1}},
	} {
		if err := rt.Register(p); err == nil || !strings.Contains(err.Error(), message) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, message)
		}
	}
}

func TestRunRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	if err := b.runtime(millrace.Config{}).Run(b.ctx); err == nil {
		t.Error("it ran without a projection")
	}
	p := millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))}
	rt := b.runtime(millrace.Config{}, p)
	if err := rt.Register(p); err == nil {
		t.Error("a doubled name was accepted")
	}
	if err := b.runtime(millrace.Config{Tenants: []string{"nobody"}}, p).Run(b.ctx); !errors.Is(err, projection.ErrUnknownTenant) {
		t.Errorf("unknown tenant: %v", err)
	}
	raw, err := pgstore.Open(b.ctx, b.dsn, pgstore.Options{Schema: "other"})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := b.runtime(millrace.Config{Store: raw}, p).Run(b.ctx); !errors.Is(err, pgstore.ErrNotMigrated) {
		t.Errorf("not migrated: %v", err)
	}
	b.start(rt)
	b.eventually("it runs", func() bool { return b.status(rt, "p").State == millrace.StateLive })
	if err := rt.Run(b.ctx); err == nil {
		t.Error("it ran twice at once")
	}
	if err := rt.Register(millrace.Projection{Name: "q", Handler: pgstore.Batch(record("q"))}); err == nil {
		t.Error("a projection was registered while it ran")
	}
}

func TestPoolOfOneWorks(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "1")
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))},
		millrace.Projection{Name: "d", Handler: millrace.DeliverEach(freely)}, millrace.Projection{Name: "q", Handler: pgstore.Batch(record("q")), Types: []string{"none"}}, millrace.Projection{Name: "r", Handler: pgstore.Batch(record("r")), MaxEvents: 7})
	b.append("a", 1000)
	b.start(rt)
	last := b.append("a", 1).Positions[0]
	for _, name := range []string{"p", "q", "r", "d"} {
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
	}
	b.verify("p")
	b.verify("r")
}

func TestStatesAreThoseThatActorsPublish(t *testing.T) {
	t.Parallel()
	for public, actors := range map[millrace.State]actors.State{
		millrace.StateStarting: actors.Starting, millrace.StateCatchUp: actors.CatchUp, millrace.StateLive: actors.Live,
		millrace.StateWaiting: actors.Waiting, millrace.StateFailed: actors.Failed, millrace.StateMissingObject: actors.MissingObject,
	} {
		if string(public) != string(actors) {
			t.Errorf("%q is %q", public, actors)
		}
	}
}
