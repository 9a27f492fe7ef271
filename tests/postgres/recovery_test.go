package postgres_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
)

func TestWhatWasMendedWhileNobodyRanDoesNotCountAsFailed(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 10)
	b.Idle(b.Recorders("p")...)
	b.exec("alter table millrace_default.events rename to lost")
	stop := b.Start(b.Runtime(millrace.Config{}, b.Recorders("p")...))
	remote := b.Runtime(millrace.Config{}, b.Recorders("other")...)
	b.Is(remote, "p", millrace.StateFailed)
	stop()
	b.exec("alter table millrace_default.lost rename to events")
	b.Append("a", 3)
	if _, err := b.Runtime(millrace.Config{}, b.Recorders("p")...).RunUntilIdle(b.Ctx); err != nil {
		t.Errorf("after it was mended: %v", err)
	}
	b.Verify("p")
}

// Nobody tells a node whose session stands that a lease of it was taken, and a projection that is at rest writes nothing that
// would be refused.
func TestLeaseThatWasTakenUnnoticedIsGivenUpAndClaimedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Running(millrace.Config{ReconcileInterval: 20 * time.Millisecond}, b.Recorders("p")...)
	b.Is(rt, "p", millrace.StateLive)
	const other = "11111111-1111-1111-1111-111111111111"
	b.exec(`insert into millrace.nodes (id, projections, tenants, session_key, expires_at)
		values ('` + other + `', '{q}', '{}', 1, now() + interval '1 hour')`)
	b.exec("update millrace.leases set owner = '" + other + "', epoch = epoch + 1")
	b.Is(rt, "p", millrace.StateElsewhere)
	b.exec("update millrace.leases set owner = null")
	b.Reaches(rt, "p", b.Append("a", 3).Positions[2])
	b.Verify("p")
}

// Its session connection goes another way than its pool, so that its heartbeats would keep its share from the others for ever.
func TestNodeWhosePoolIsBrokenLeavesItsShareToOthersUntilItIsMended(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	quick := millrace.Config{ReconcileInterval: 100 * time.Millisecond, LeaseDuration: 2 * time.Second, HeartbeatInterval: 300 * time.Millisecond}
	rt := b.Another(quick, b.Recorders("a", "b", "c", "d")...)
	b.Start(rt)
	var broken atomic.Bool
	config, err := pgxpool.ParseConfig(b.dsn)
	b.Must(err)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if broken.Load() {
			return nil, errors.New("no way through")
		}
		return dial(ctx, network, addr)
	}
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return !broken.Load(), nil }
	pool, err := pgxpool.NewWithConfig(b.Ctx, config)
	b.Must(err)
	t.Cleanup(pool.Close)
	store, err := pgstore.OpenPool(b.Ctx, pool, pgstore.Options{SessionDSN: b.dsn})
	b.Must(err)
	t.Cleanup(store.Close)
	quick.Store = store
	b.Start(b.Runtime(quick, b.Recorders("a", "b", "c", "d")...))
	b.Share(rt, 2)
	broken.Store(true)
	b.Share(rt, 1)
	broken.Store(false)
	b.Share(rt, 2)
}
