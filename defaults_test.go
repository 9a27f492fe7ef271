package millrace

import (
	"testing"
	"time"
)

func TestConfigurationIsTheRuntimesOwn(t *testing.T) {
	t.Parallel()
	tenants := []string{"a"}
	c := Config{Tenants: tenants}.withDefaults()
	if tenants[0] = "b"; c.Tenants[0] != "a" {
		t.Errorf("the caller's change of a slice reached the runtime: %q", c.Tenants)
	}
}

// The promises about takeovers depend on these defaults, which docs/ownership.md names.
func TestDefaultsMatchTheOwnershipPage(t *testing.T) {
	t.Parallel()
	type timing struct{ heartbeat, lease, notice, reconcile time.Duration }
	for given, want := range map[timing]timing{
		{}:                       {time.Second, 5 * time.Second, time.Second, 2 * time.Second},
		{lease: time.Second / 2}: {time.Second, time.Second / 2, time.Second / 2, 2 * time.Second},
		{heartbeat: 1, lease: 2, notice: 3, reconcile: 4}: {1, 2, 3, 4},
	} {
		c := Config{HeartbeatInterval: given.heartbeat, LeaseDuration: given.lease, FailureDetection: given.notice, ReconcileInterval: given.reconcile}.withDefaults()
		if got := (timing{c.HeartbeatInterval, c.LeaseDuration, c.FailureDetection, c.ReconcileInterval}); got != want {
			t.Errorf("of %v comes %v, want %v", given, got, want)
		}
	}
}
