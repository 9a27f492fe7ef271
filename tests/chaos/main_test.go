package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/tests/kit"
)

var (
	chaosFor = flag.Duration("chaos", 0,
		"run random schedules for this long, in rounds with a new seed each (0: one short round)")
	takeovers = flag.Int("takeovers", 0, "measure this many takeovers of each kind (0: none)")
	chaosSeed = flag.Int64("seed", 0, "repeat the random schedule of this seed (0: a new seed)")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeVariable); text != "" {
		os.Exit(runNode(text))
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "2") // the shared server has connections for two clusters
	testmain.Run(m)
}

// until polls a condition until it holds, and less often the longer it waits. The error names the condition.
func until(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for began := time.Now(); !holds(); {
		if ctx.Err() != nil {
			return fmt.Errorf("not within %v: %s", limit, what)
		}
		kit.Pass(ctx, min(max(time.Since(began)/10, 10*time.Millisecond), 50*time.Millisecond))
	}
	return nil
}
