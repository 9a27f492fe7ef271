package millrace

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/observe"
)

// Config configures a Runtime. Store must be set. The zero value of every other field means its default. Durations are
// from 1 ms to 365 days.
type Config struct {
	// Store keeps the events, the checkpoints and the leases: a pgstore.Store or a sqlitestore.Store. The runtime does
	// not close it.
	Store Store
	// Tenants are the tenants whose projections this runtime runs. Set it to serve some tenants by processes of their
	// own. Default: all tenants of the store, including those that are created while it runs.
	Tenants []string
	// Middleware is called around the functions of all handlers, the first outermost, for instance to log or to trace
	// them. Default: none.
	Middleware []Middleware
	// Logger receives the logs. Programs that log by log/slog set it to SlogLogger(slog.Default()). Default: nothing is
	// logged.
	Logger *zap.Logger
	// NodeName is the name of this process in status and logs. Set it where host names say little, for instance to the
	// name of the service. Several processes may have the same name. At most 200 bytes of UTF-8 text without control
	// characters. Default: the host name and the process ID, such as "web-3:4711".
	NodeName string
	// Observer has callbacks for what happens in the runtime, such as batches, failures and changes of leases. See
	// package observe. Package millraceotel returns one for OpenTelemetry. Default: none is called.
	Observer observe.Observer

	// LeaseDuration is how long a lease is valid after the last heartbeat of its owner. Then other processes take over
	// from a process that was cut off or frozen. A dead process is replaced sooner: see FailureDetection. Default 5 s.
	// Raise it if processes or the server pause for seconds, and leases move although their owners live. If it is much
	// shorter, short pauses move leases. Heartbeats are sent each second, or five times in a LeaseDuration of less than
	// 5 s.
	LeaseDuration time.Duration
	// FailureDetection is the longest time until the death of another process is noticed by its session lock. From 20
	// ms to LeaseDuration. Default 1 s, or LeaseDuration if that is shorter. Lower it if takeovers must be faster than
	// a second. Halving it doubles how often each node checks the others.
	FailureDetection time.Duration
	// PollInterval is how often the store is polled for events whose notification was lost. Default 5 s. Lower it where
	// no notifications arrive, as behind a pooler without a session connection: there it is the latency. Each time, a
	// node polls a twelfth of its tenants, but at least 250, and in addition the tenants in which a poll has found
	// events that came without a notification. So the first such event of a tenant may be found after twelve intervals.
	PollInterval time.Duration
	// GracePeriod is how long batches, and hooks of operations, may continue when Run's context ends. Then they are
	// cancelled and rolled back. Set it to less than the time that the process has to stop, such as
	// terminationGracePeriodSeconds of Kubernetes. Default 10 s.
	GracePeriod time.Duration

	// MaxBatches limits the batches that run at once. Lower it if other code of the process needs connections of the
	// same pool, or if batches load the server too much. It must be less than the pool's size, so that a connection is
	// left for reading. Default: three quarters of the pool's size, at least 1; for a pool of 4 to 7, its size less 2;
	// for a file, 1.
	//
	// Batches that share a message (see pgstore.Queued) hold no connection while they run. Up to four times MaxBatches
	// of them run at once, and of one tenant up to four times MaxBatchesPerTenant. Each holds its events, up to
	// Projection.MaxBytes, and up to 64 KiB of statements while it waits for its message. With the defaults, a pool of
	// 8 and full batches, these are 24 times 4 MiB.
	MaxBatches int
	// MaxBatchesPerTenant limits the batches of one tenant, so that no tenant takes all of them. Lower it if two busy
	// tenants must not delay the others, and raise it if one tenant has most of the events. Default: half of
	// MaxBatches, rounded up. There is no such limit while this node serves a single tenant.
	MaxBatchesPerTenant int
	// TenantWeight returns the weight of a tenant, by which waiting tenants share the slots for batches, reads and
	// deliveries. Set it if some tenants have paid for more. A tenant of weight 3 gets three slots while a tenant of
	// weight 1 gets one. MaxBatchesPerTenant and the limit of MaxDeliveries for each tenant hold whatever the weight.
	// Weights are from 1 to 100; a result outside of that range counts as the nearest bound. A result is used for a
	// minute. TenantWeight may be called from several goroutines at once. The tenant's projections wait for it, so it
	// must return at once. Default: all tenants have the weight 1.
	TenantWeight func(tenant string) int

	// MaxDeliveries limits the deliveries (see Deliver) that run at once, beside the batches. Raise it if many
	// receivers are slow, and lower it if the process has little memory or few sockets. Default 100, or twice
	// MaxBatches if that is more. A delivery holds no connection while its receiver works, only a few goroutines and
	// its events. On a node with several tenants, one tenant has at most half of the deliveries. Projections whose last
	// delivery took longer than a second share half of the deliveries, in total and per tenant. So receivers that hang
	// leave the other half to other projections. At most a quarter of the pool's connections acknowledge at once.
	MaxDeliveries int
}

func (c Config) withDefaults() Config {
	c.Tenants, c.Middleware = slices.Clone(c.Tenants), slices.Clone(c.Middleware)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, engine.DefaultLeaseDuration)
	c.FailureDetection = cmp.Or(c.FailureDetection, min(time.Second, c.LeaseDuration))
	c.PollInterval = cmp.Or(c.PollInterval, 5*time.Second)
	c.GracePeriod = cmp.Or(c.GracePeriod, 10*time.Second)
	c.NodeName = cmp.Or(c.NodeName, processName())
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// maxNodeName is how many bytes Config.NodeName may have.
const maxNodeName = 200

// processName is the default of Config.NodeName.
func processName() string {
	pid := fmt.Sprintf(":%d", os.Getpid())
	host, err := os.Hostname()
	if err != nil || valid.Name("host", host, maxNodeName-len(pid)) != nil {
		host = "unknown host"
	}
	return host + pid
}

// validate returns an error about the first invalid field of a configuration that has its defaults.
func (c Config) validate(database engine.Database) error {
	for _, field := range []struct {
		name  string
		value time.Duration
	}{
		{"LeaseDuration", c.LeaseDuration}, {"FailureDetection", c.FailureDetection}, {"PollInterval", c.PollInterval},
		{"GracePeriod", c.GracePeriod},
	} {
		if field.value < time.Millisecond {
			return fmt.Errorf("%s must be at least 1ms: %v", "Config."+field.name, field.value)
		}
		if err := engine.ValidDuration("Config."+field.name, field.value); err != nil {
			return err
		}
	}
	if c.FailureDetection < 20*time.Millisecond {
		return fmt.Errorf("Config.FailureDetection must be at least 20ms: %v", c.FailureDetection)
	}
	if c.FailureDetection > c.LeaseDuration {
		return fmt.Errorf("Config.FailureDetection (%v) must be at most Config.LeaseDuration (%v)", c.FailureDetection,
			c.LeaseDuration)
	}
	pool := database.Connections()
	switch {
	case c.MaxBatches < 0:
		return fmt.Errorf("Config.MaxBatches must not be negative: %d", c.MaxBatches)
	case c.MaxBatches > 1 && c.MaxBatches >= pool:
		return fmt.Errorf("Config.MaxBatches (%d) must be less than the connections of the store's pool (%d)",
			c.MaxBatches, pool)
	case c.MaxBatchesPerTenant < 0:
		return fmt.Errorf("Config.MaxBatchesPerTenant must not be negative: %d", c.MaxBatchesPerTenant)
	case c.MaxDeliveries < 0:
		return fmt.Errorf("Config.MaxDeliveries must not be negative: %d", c.MaxDeliveries)
	}
	if err := valid.Name("Config.NodeName", c.NodeName, maxNodeName); err != nil {
		return err
	}
	seen := make(map[string]bool, len(c.Tenants))
	for _, t := range c.Tenants {
		if err := database.ValidTenant(t); err != nil {
			return fmt.Errorf("Config.Tenants: %w", err)
		}
		if seen[t] {
			return fmt.Errorf("Config.Tenants must not name a tenant twice: %q", t)
		}
		seen[t] = true
	}
	return validateMiddleware("Config.Middleware", c.Middleware)
}
