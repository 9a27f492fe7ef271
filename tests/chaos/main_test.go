// Package chaos_test kills, freezes, cuts off and restarts everything that a fleet of nodes stands on, while writers append
// throughout, and then compares what the read models were given with what was committed.
//
// A [cluster] is a database, on the private PostgreSQL server that most tests share or on a primary with a standby of its
// own, and nodes: real processes, each behind a proxy of its own.
// The writers run in the process of the tests. Faults strike the cluster and are undone again; each says what it expects of
// the library. What the nodes' handlers were given stands in a table without a unique index, which [check] reads at the
// end. A trigger keeps a journal of the leases, from which [judge] tells who took what from whom, and how long it was
// without an owner.
//
// The projection shipments fails at poison events while what they need is missing, of which a table tells all nodes alike. It
// parks their streams, which replay themselves. What the database then says about dead letters must agree with itself in
// each snapshot, whatever goes wrong; and at the end, when all is mended, nothing may be left of them.
//
// A node is this test binary, executed again with a [nodeSpec] in its environment.
package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

var (
	chaosFor  = flag.Duration("chaos", 0, "run random schedules for that long, in rounds with a new seed each (0: one short round)")
	takeovers = flag.Int("takeovers", 0, "measure that many takeovers of each kind (0: none)")
	chaosSeed = flag.Int64("seed", 0, "repeat the random schedule of this seed (0: a fresh one)")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeVariable); text != "" {
		os.Exit(runNode(text))
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "2") // the server that they share has connections for two clusters
	testmain.Run(m)
}

// pass lets a while go by, or ctx end.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// until waits for a condition. The error says what never became true.
func until(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %s", limit, what)
		}
	}
	return nil
}
