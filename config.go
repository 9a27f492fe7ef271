package millrace

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
)

// Config configures a Runtime. Store must be set. The zero value of every other field means its default.
type Config struct {
	// Store keeps the events, the checkpoints and the leases. The runtime does not close it.
	Store Store
	// Tenants are the tenants whose projections this runtime runs. Default: all that the store has, also those that are
	// created while it runs.
	Tenants []string
	// Logger receives what is worth knowing. Default: nothing is logged.
	Logger *zap.Logger

	// Heartbeat is how far apart the heartbeats are by which this node keeps its leases. Default 1 s. A third of
	// LeaseDuration at the most, so that two may be lost.
	HeartbeatInterval time.Duration
	// LeaseDuration is how long the leases outlive the last heartbeat, and so how soon other processes take over after this
	// one was cut off or frozen. Default 5 s. Far less, and a pause of the process or of the server moves leases about.
	LeaseDuration time.Duration
	// FailureDetection is within what time the death of another process is noticed, where its session lock tells of it. Default
	// 1 s, or LeaseDuration where that is shorter; LeaseDuration at the most, and 20 ms at the least. Halving it doubles how often each
	// node asks who is alive.
	FailureDetection time.Duration
	// PollInterval is how far apart the looks for events are that no wake-up told of. Default 5 s. With wake-ups it only
	// matters when one is lost; without them it is the latency.
	PollInterval time.Duration
	// ReconcileInterval is how far apart the looks for free leases and new tenants are. Default 2 s.
	ReconcileInterval time.Duration
	// AdvanceInterval bounds how far behind a checkpoint may lag over events that do not concern its projection.
	// Default 5 s.
	AdvanceInterval time.Duration
	// GracePeriod is how long batches under way may go on when the runtime is to end; after it they are cancelled and
	// rolled back. Default 10 s.
	GracePeriod time.Duration
	// QueryTimeout bounds each call of the database that runs no handler. Default 10 s.
	QueryTimeout time.Duration

	// MaxBatches limits the batches that run at once. Default three quarters of the pool's size, at least 1, and 2 less than a pool
	// of 4 to 7; less than the pool's size, so that one is left to read with.
	MaxBatches int
	// MaxBatchesPerTenant limits them for each tenant, so that none takes them all. Default half of MaxBatches, rounded
	// up. While this node serves a single tenant, that is not limited.
	MaxBatchesPerTenant int

	// TailMemory bounds, in bytes, the memory for the newest events of all tenants on this node. These events are read once
	// for all projections of a tenant. Default 64 MiB. When it is used up, the tenants with the oldest events give theirs up,
	// and their projections read for themselves. A tenant uses 8 MiB at most, and keeps an event for 5 s at most. The events
	// that projections are working on are not counted: for each projection a page of Projection.MaxBytes, or the events that
	// this memory had of its tenant.
	TailMemory int
	// MaxDeliveries limits the deliveries (see Deliver) that run at once, beside the batches. Default 100, or twice
	// MaxBatches if that is more: while its receiver works, a delivery holds no connection, only a few goroutines and its
	// events, up to Projection.MaxBytes. On a node with several tenants, at most half of them are of one tenant. Projections
	// whose last delivery took longer than a second share half of them, in all and of each tenant. So receivers that hang
	// leave the other half to other projections. At most a quarter of the pool's connections acknowledge at once.
	MaxDeliveries int
}

func (c Config) withDefaults() Config {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&c.HeartbeatInterval, time.Second)
	or(&c.LeaseDuration, 5*time.Second)
	or(&c.FailureDetection, min(time.Second, c.LeaseDuration))
	or(&c.PollInterval, 5*time.Second)
	or(&c.ReconcileInterval, 2*time.Second)
	or(&c.AdvanceInterval, 5*time.Second)
	or(&c.GracePeriod, 10*time.Second)
	or(&c.QueryTimeout, 10*time.Second)
	if c.TailMemory == 0 {
		c.TailMemory = actors.DefaultTailBytes
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// validate returns an error about the first invalid field of a configuration that has its defaults.
func (c Config) validate(store engine.Store) error {
	for _, field := range []struct {
		name  string
		value time.Duration
	}{
		{"HeartbeatInterval", c.HeartbeatInterval}, {"LeaseDuration", c.LeaseDuration}, {"FailureDetection", c.FailureDetection}, {"PollInterval", c.PollInterval},
		{"ReconcileInterval", c.ReconcileInterval}, {"AdvanceInterval", c.AdvanceInterval},
		{"GracePeriod", c.GracePeriod}, {"QueryTimeout", c.QueryTimeout},
	} {
		if field.value < time.Millisecond {
			return fmt.Errorf("%s must be at least 1ms: %v", "Config."+field.name, field.value)
		}
	}
	if c.HeartbeatInterval > c.LeaseDuration/3 {
		return fmt.Errorf("Config.HeartbeatInterval (%v) must be at most a third of Config.LeaseDuration (%v)", c.HeartbeatInterval, c.LeaseDuration)
	}
	if c.FailureDetection < 20*time.Millisecond {
		return fmt.Errorf("Config.FailureDetection must be at least 20ms: %v", c.FailureDetection)
	}
	if c.FailureDetection > c.LeaseDuration {
		return fmt.Errorf("Config.FailureDetection (%v) must be at most Config.LeaseDuration (%v)", c.FailureDetection, c.LeaseDuration)
	}
	pool := store.Connections()
	switch {
	case c.MaxBatches < 0:
		return fmt.Errorf("Config.MaxBatches must not be negative: %d", c.MaxBatches)
	case c.MaxBatches > 1 && c.MaxBatches >= pool:
		return fmt.Errorf("Config.MaxBatches (%d) must be less than the connections of the store's pool (%d)", c.MaxBatches, pool)
	case c.MaxBatchesPerTenant < 0:
		return fmt.Errorf("Config.MaxBatchesPerTenant must not be negative: %d", c.MaxBatchesPerTenant)
	case c.TailMemory < 0:
		return fmt.Errorf("Config.TailMemory must not be negative: %d", c.TailMemory)
	case c.MaxDeliveries < 0:
		return fmt.Errorf("Config.MaxDeliveries must not be negative: %d", c.MaxDeliveries)
	}
	seen := make(map[string]bool, len(c.Tenants))
	for _, t := range c.Tenants {
		if err := store.ValidTenant(t); err != nil {
			return fmt.Errorf("Config.Tenants: %w", err)
		}
		if seen[t] {
			return fmt.Errorf("Config.Tenants must not name a tenant twice: %q", t)
		}
		seen[t] = true
	}
	return nil
}
