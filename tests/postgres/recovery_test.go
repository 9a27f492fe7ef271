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
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

func TestWhatWasMendedWhileNobodyRanDoesNotCountAsFailed(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.append("a", 10)
	if _, err := b.runtime(millrace.Config{}, several("p")...).RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.exec("alter table millrace_default.events rename to lost")
	stop := b.start(b.runtime(millrace.Config{}, several("p")...))
	remote := b.runtime(millrace.Config{}, several("other")...)
	b.eventually("it has failed", func() bool { return b.status(remote, "p").State == millrace.StateFailed })
	stop()
	b.exec("alter table millrace_default.lost rename to events")
	b.append("a", 3)
	if _, err := b.runtime(millrace.Config{}, several("p")...).RunUntilIdle(b.ctx); err != nil {
		t.Errorf("after it was mended: %v", err)
	}
	b.verify("p")
}

// Nobody tells a node whose session stands that a lease of it was taken, and a projection that is at rest writes nothing that
// would be refused.
func TestLeaseThatWasTakenUnnoticedIsGivenUpAndClaimedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{ReconcileInterval: 20 * time.Millisecond}, several("p")...)
	b.start(rt)
	b.eventually("it is live", func() bool { return b.status(rt, "p").State == millrace.StateLive })
	const other = "11111111-1111-1111-1111-111111111111"
	b.exec(`insert into millrace.nodes (id, projections, tenants, session_key, expires_at)
		values ('` + other + `', '{q}', '{}', 1, now() + interval '1 hour')`)
	b.exec("update millrace.leases set owner = '" + other + "', epoch = epoch + 1")
	b.eventually("it is given up", func() bool { return b.status(rt, "p").State == millrace.StateElsewhere })
	b.exec("update millrace.leases set owner = null")
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, b.append("a", 3).Positions[2]); err != nil {
		t.Fatal(err)
	}
	b.verify("p")
}

// Its session connection goes another way than its pool, so that its heartbeats would keep its share from the others for ever.
func TestNodeWhosePoolIsBrokenLeavesItsShareToOthersUntilItIsMended(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	quick := millrace.Config{ReconcileInterval: 100 * time.Millisecond, LeaseDuration: 2 * time.Second, HeartbeatInterval: 300 * time.Millisecond}
	rt := b.another(quick, several("a", "b", "c", "d")...)
	b.start(rt)
	var broken atomic.Bool
	config, err := pgxpool.ParseConfig(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if broken.Load() {
			return nil, errors.New("no way through")
		}
		return dial(ctx, network, addr)
	}
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return !broken.Load(), nil }
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgstore.OpenPool(b.ctx, pool, pgstore.Options{SessionDSN: b.dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	quick.Store = store
	b.start(b.runtime(quick, several("a", "b", "c", "d")...))
	b.eventually("both share", func() bool { return b.balanced(rt, 2) })
	broken.Store(true)
	b.eventually("the other one has all", func() bool { return b.balanced(rt, 1) })
	broken.Store(false)
	b.eventually("both share again", func() bool { return b.balanced(rt, 2) })
}

// An attempt that is counted in advance, since events before it seemed to end their processes, is none where the process ended
// in order.
func TestOrderlyEndIsNotTakenForTheDeathOfItsProcess(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.append("s", 1)
	slow := millrace.Projection{Name: "p", Handler: pgstore.Batch(func(ctx context.Context, _ pgx.Tx, _ []event.Envelope) error {
		<-ctx.Done()
		return ctx.Err()
	})}
	for i := range 6 {
		ctx, cancel := context.WithCancel(b.ctx)
		rt := b.runtime(millrace.Config{GracePeriod: 50 * time.Millisecond}, slow)
		ended := make(chan error, 1)
		go func() { ended <- rt.Run(ctx) }()
		b.eventually("the handler is called", func() bool {
			var deaths int
			err := b.store.Pool().QueryRow(b.ctx, "select crash_attempts from millrace.projections").Scan(&deaths)
			return (err == nil || errors.Is(err, pgx.ErrNoRows)) && (deaths == 1 || i == 0 && b.status(rt, "p").Owner != "")
		})
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		var deaths int
		if err := b.store.Pool().QueryRow(b.ctx, "select crash_attempts from millrace.projections").Scan(&deaths); err != nil || deaths != 0 {
			t.Fatalf("after %d orderly ends: %d deaths, %v", i+1, deaths, err)
		}
		if i == 0 {
			b.exec("update millrace.leases set crash_count = 3")
		}
	}
	if letters := b.letters("p"); len(letters) > 0 {
		t.Errorf("parked: %+v", letters)
	}
}

// The same of a replay, which is always counted in advance.
func TestOrderlyEndOfAReplayIsNotTakenForTheDeathOfItsProcess(t *testing.T) {
	t.Parallel()
	for _, action := range []projection.Action{projection.ActionPark, projection.ActionParkStream} {
		t.Run(action.String(), func(t *testing.T) {
			t.Parallel()
			s := newParking(t)
			s.p.OnFailure = action
			s.poisonAt(s.at["a"][2])
			s.idle(s.p)
			var replays atomic.Int64
			hangs := s.p
			hangs.Handler = pgstore.Batch(func(ctx context.Context, _ pgx.Tx, _ []event.Envelope) error {
				replays.Add(1)
				<-ctx.Done()
				return ctx.Err()
			})
			replayed := make(chan projection.CommandResult, 1)
			go func() {
				o, err := s.letters.Replay(s.ctx, projection.DeadLetterFilter{All: true}, 100)
				if err != nil {
					t.Error(err)
				}
				replayed <- o
			}()
			for end := range 4 {
				ctx, cancel := context.WithCancel(s.ctx)
				rt := s.runtime(millrace.Config{GracePeriod: 50 * time.Millisecond}, hangs)
				ended := make(chan error, 1)
				go func() { ended <- rt.Run(ctx) }()
				s.eventually("the replay is under way", func() bool { return replays.Load() > int64(end) })
				cancel()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			}
			s.mended.Store(true)
			rt := s.runtime(millrace.Config{}, s.p)
			s.start(rt)
			if o := <-replayed; o.Failed != 0 || o.Done == 0 {
				t.Errorf("replayed %+v", o)
			}
			if n := len(s.positions("p")); n != 30 || len(s.parked()) != 0 {
				t.Errorf("%d events applied, want 30; parked: %v", n, s.parked())
			}
		})
	}
}
