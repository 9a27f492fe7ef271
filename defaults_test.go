package millrace

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/tuning"
)

func TestConfigurationIsTheRuntimesOwn(t *testing.T) {
	t.Parallel()
	tenants := []string{"a"}
	c := Config{Tenants: tenants}.withDefaults()
	tenants[0] = "b"
	if c.Tenants[0] != "a" {
		t.Errorf("the caller's change of a slice reached the runtime: %q", c.Tenants)
	}
}

// The promises about takeovers depend on these defaults, which docs/ownership.md names.
func TestDefaultsMatchTheOwnershipPage(t *testing.T) {
	t.Parallel()
	type timing struct{ lease, notice, heartbeat, reconcile time.Duration }
	for given, want := range map[timing]timing{
		{}:                       {5 * time.Second, time.Second, time.Second, 2 * time.Second},
		{lease: time.Minute}:     {time.Minute, time.Second, time.Second, 2 * time.Second},
		{lease: time.Second / 2}: {time.Second / 2, time.Second / 2, time.Second / 10, 2 * time.Second},
		{1, 2, 3, 4}:             {1, 2, 3, 4},
	} {
		c := Config{LeaseDuration: given.lease, FailureDetection: given.notice}.withDefaults()
		tuned := tuning.Of(tuning.Settings{Heartbeat: given.heartbeat, Reconcile: given.reconcile}, c.LeaseDuration)
		if got := (timing{c.LeaseDuration, c.FailureDetection, tuned.Heartbeat, tuned.Reconcile}); got != want {
			t.Errorf("of %v comes %v, want %v", given, got, want)
		}
	}
}
