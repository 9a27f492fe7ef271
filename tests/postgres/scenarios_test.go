package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func countAppends(t *testing.T, counts *statementCounts) {
	c := counts.setup(t)
	one := event.Event{Type: "counted"}
	appended := func(stream string, expected event.Expected) func() {
		return func() {
			_, err := c.tapped.Append(c.Ctx, stream, expected, one, one)
			c.Must(err)
		}
	}
	refused := func(stream string, expected event.Expected, want error) func() {
		return func() {
			if _, err := c.tapped.Append(c.Ctx, stream, expected, one); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	}
	c.during("append to any version", appended("a", event.Any))
	c.during("append to a new stream", appended("b", event.NoStream))
	c.during("append to an exact version", appended("b", event.Exact(2)))
	c.during("append with a version conflict", refused("b", event.Exact(2), event.ErrVersionConflict))
	c.during("append with a key to any version", appended("c", event.Any.WithKey("k1")))
	c.during("append with a key to a new stream", appended("d", event.NoStream.WithKey("k2")))
	c.during("append with a key to an exact version", appended("d", event.Exact(2).WithKey("k3")))
	c.during("append with a key and a version conflict",
		refused("d", event.Exact(2).WithKey("k4"), event.ErrVersionConflict))
	c.during("append with a key again", appended("c", event.Any.WithKey("k1")))
	c.during("append with the key of another stream", refused("e", event.Any.WithKey("k1"), event.ErrKeyReused))

	inTx := func(expected event.Expected, want error) func() {
		return func() {
			c.Must(c.tapped.InTx(c.Ctx, func(ctx context.Context, tx kit.Tx) error {
				if _, err := c.tapped.AppendTx(ctx, tx, "f", expected, one); !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
				return nil
			}))
		}
	}
	c.during("AppendTx within InTx", inTx(event.NoStream, nil))
	c.during("AppendTx within InTx with a version conflict", inTx(event.NoStream, event.ErrVersionConflict))
	c.during("AppendTx within InTx with a key", inTx(event.Any.WithKey("k5"), nil))
	alias := func() {
		_, err := c.tapped.Alias(c.Ctx, "name")
		c.Must(err)
	}
	c.during("alias of a new name", alias)
	c.during("alias of a name again", alias)
	c.during("describe a stream", func() {
		_, err := c.tapped.Stream(c.Ctx, "a")
		c.Must(err)
	})
	read := func(iterate func(yield func(event.Envelope, error) bool)) func() {
		return func() {
			for _, err := range iterate {
				c.Must(err)
			}
		}
	}
	c.during("read a stream", read(c.tapped.ReadStream(c.Ctx, "a", 1)))
	c.during("read all events", read(c.tapped.ReadAll(c.Ctx, event.ReadOptions{})))
}

func countTenants(t *testing.T, counts *statementCounts) {
	c := counts.setup(t)
	c.during("create a tenant", func() {
		_, err := c.tapped.CreateTenant(c.Ctx, "acme")
		c.Must(err)
	})
	c.during("create a tenant that exists", func() {
		_, err := c.tapped.CreateTenant(c.Ctx, "acme")
		c.Must(err)
	})
	c.during("create 10 tenants at once", func() {
		var names []string
		for i := range 10 {
			names = append(names, fmt.Sprint("tenant", i))
		}
		_, err := c.tapped.CreateTenants(c.Ctx, names)
		c.Must(err)
	})
	c.during("migrate 12 tenants that are complete", func() { c.Must(c.tapped.Migrate(c.Ctx)) })
}

func countStart(t *testing.T, counts *statementCounts) {
	for _, n := range []int{1, 1000} {
		c := counts.setup(t)
		var stop func()
		// The node may stop before it has announced its drain, or before the notification has it check the other nodes.
		varies := []string{"announce_drain", "list_peers"}
		if n > 1 {
			// Leases are released in the groups in which their projections come to rest.
			varies = append(varies, "begin_durable", "release", "commit")
		}
		for _, which := range []string{"new", "known"} {
			c.during(fmt.Sprintf("start a node with %d %s projections", n, which), func() {
				stop = c.Start(c.runtime(hourly, c.named(n)...))
				c.owned(n)
			})
			c.during(fmt.Sprintf("stop a node with %d %s projections", n, which), stop, varies...)
			if releases := c.times("release"); releases == 0 || releases > 1+n/50 {
				t.Errorf("%d statements released %d leases", releases, n)
			}
		}
	}
}

// countIdle counts a round of each kind of periodic work, with 1 and with 1,000 projections: it must be the same.
func countIdle(t *testing.T, counts *statementCounts) {
	const often = 40 * time.Millisecond
	tuned := func(change func(s *tuning.Settings)) millrace.Config { return kit.Tuned(hourly, change) }
	rounds := []struct {
		name, marker string
		n            int
		set          func(config *millrace.Config)
	}{
		{
			"a heartbeat", "heartbeat", 1,
			func(config *millrace.Config) { *config = tuned(func(s *tuning.Settings) { s.Heartbeat = often }) },
		},
		{
			"a check of the other nodes", "list_peers", 1,
			func(config *millrace.Config) { config.FailureDetection = often },
		},
		{
			"16 searches for leases, one of which reads all", "free_leases", 16,
			func(config *millrace.Config) { *config = tuned(func(s *tuning.Settings) { s.Reconcile = often }) },
		},
		{"a poll", "heads", 1, func(config *millrace.Config) { config.PollInterval = often }},
	}
	few, many := counts.setup(t), counts.setup(t)
	for _, round := range rounds {
		config := hourly
		round.set(&config)
		in := func(c *counted, n int) string {
			c.tap.forget()
			stop := c.Start(c.runtime(config, c.named(n)...))
			defer stop()
			c.owned(n)
			c.Eventually("the feed has read", func() bool { return c.times("tail_start") > 0 })
			c.rounds(round.marker, 2*round.n) // the start has ended
			return c.rounds(round.marker, round.n)
		}
		block := in(few, 1)
		counts.compare(t, "idle: "+round.name, block)
		if other := in(many, 1000); other != block {
			t.Errorf("%s differs between 1 and 1,000 projections:\n%s", round.name, difference(block, other))
		}
	}
	config := tuned(func(s *tuning.Settings) { s.Advance = often })
	stop := many.Start(many.runtime(config, many.named(1000)...))
	defer stop()
	many.owned(1000)
	many.settle()
	many.during("idle: between the rounds, for two seconds", func() { kit.Pass(many.Ctx, 2*time.Second) })
}

func countEvents(t *testing.T, counts *statementCounts) {
	for _, n := range []int{1, 10} {
		c := counts.setup(t, "pool_max_conns", "16")
		c.Append("a", 1)
		config := hourly
		config.MaxBatches = n // none waits for its slot: see TestBatchesThatWaitAreBegunByTheEndsOfOthers
		c.Start(c.runtime(config, c.named(n)...))
		c.at(n, 1)
		c.settle()
		c.during(fmt.Sprintf("a live event, for %d projections", n), func() {
			c.Append("a", 1)
			c.at(n, 2)
		})
		if n > 1 {
			continue
		}
		own := func() {
			head := c.Head()
			_, err := c.tapped.Append(c.Ctx, "own", event.Any, event.Event{Type: "counted"})
			c.Must(err)
			c.at(n, head+1)
		}
		own() // before it, the tenant has no prepared appends
		c.settle()
		c.during("a live event that this process has appended", own)
	}
	t.Run("other kinds", func(t *testing.T) {
		c := counts.setup(t)
		shapes := map[string]millrace.Projection{
			"queued statements": {Handler: pgstore.QueuedEach(func(_ context.Context, q pgstore.Queue,
				e event.Envelope) error {
				q.Exec("select $1::bigint", e.Position)
				return nil
			})},
			"asynchronous commit": {AsyncCommit: true, Handler: c.Store.Batch(kit.Nothing)},
			"a delivery":          {Handler: millrace.DeliverEach(kit.Freely)},
		}
		for _, name := range []string{"queued statements", "asynchronous commit", "a delivery"} {
			p := shapes[name]
			p.Name = name
			head := c.Append("a", 1).Positions[0]
			stop := c.Start(c.runtime(hourly, p))
			at := func(position int64) {
				c.Eventually("the event is handled", func() bool {
					return value[int64](c.bundle,
						"select coalesce(max(checkpoint), 0) from millrace.leases join millrace.projections using (id) where name = $1", name) == position
				})
			}
			at(head)
			c.settle()
			c.during("a live event: "+name, func() {
				c.Append("a", 1)
				at(head + 1)
			})
			stop()
		}
	})
	t.Run("catch-up", func(t *testing.T) {
		c := counts.setup(t)
		c.Append("a", 20_000)
		p := c.named(1)[0]
		p.MaxEvents = 1000
		c.during("start a node whose projection is 20,000 events behind, in batches of 1,000", func() {
			c.Start(c.runtime(hourly, p))
			c.at(1, 20_000)
		})
	})
}

func countPause(t *testing.T, counts *statementCounts) {
	c := counts.setup(t)
	rt := c.runtime(hourly, c.named(2)...)
	c.Start(rt)
	c.owned(2)
	c.settle()
	c.during("pause a projection", func() { c.Pause(rt, "p0") })
	c.during("resume a projection", func() {
		c.Resume(rt, "p0")
		c.owned(2)
	})
}

func countFailures(t *testing.T, counts *statementCounts) {
	c := counts.setup(t)
	var broken atomic.Bool
	broken.Store(true)
	fail := func(context.Context, kit.Tx, []event.Envelope) error {
		if broken.Load() {
			return kit.ErrOnPurpose
		}
		return nil
	}
	c.Start(c.runtime(hourly, millrace.Projection{Name: "p0",
		Handler: c.Store.Batch(fail), Retry: kit.Soon(1), OnFailure: projection.ActionPark}))
	c.owned(1)
	c.settle()
	c.during("park an event after two attempts", func() {
		c.Append("a", 1)
		c.at(1, 1)
	})
	c.settle()
	broken.Store(false)
	c.during("replay a dead letter", func() {
		_, err := c.tapped.DeadLetters(projection.ID{Name: "p0"}).Replay(c.Ctx, projection.DeadLetterFilter{All: true},
			10)
		c.Must(err)
	})
}

// countParkedStreams counts an event of a stream after one of another stream was parked with its stream, for each kind
// of handler, and an event of the parked stream. The owner knows its parked streams, so the first costs what it costs
// without any.
func countParkedStreams(t *testing.T, counts *statementCounts) {
	handlers := map[string]func(s kit.Store) millrace.Handler{
		"a batch": func(s kit.Store) millrace.Handler {
			return s.Batch(func(_ context.Context, _ kit.Tx, events []event.Envelope) error {
				return failsIn("a", events)
			})
		},
		"a queued batch": func(s kit.Store) millrace.Handler {
			return s.Queued(func(_ context.Context, _ kit.Queue, events []event.Envelope) error {
				return failsIn("a", events)
			})
		},
		"a delivery": func(kit.Store) millrace.Handler {
			return millrace.DeliverEach(func(_ context.Context, e millrace.Delivered) error {
				return failsIn("a", []event.Envelope{e.Envelope})
			})
		},
	}
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		c := counts.setup(t)
		c.Start(c.runtime(hourly, millrace.Projection{Name: "p0",
			Handler: handlers[name](c.Store), Retry: kit.Soon(0)}))
		c.owned(1)
		c.Append("b", 1)
		c.Append("a", 1)
		c.at(1, 2) // of stream a one event is parked
		c.settle()
		c.during("apply an event beside a parked stream by "+name, func() {
			c.Append("b", 1)
			c.at(1, 3)
		})
		c.settle()
		c.during("park an event of a parked stream by "+name, func() {
			c.Append("a", 1)
			c.at(1, 4)
		})
	}
}

// failsIn fails at events of a stream.
func failsIn(stream string, events []event.Envelope) error {
	for _, e := range events {
		if e.Stream == stream {
			return projection.At(e.Position, kit.ErrOnPurpose)
		}
	}
	return nil
}

// countTakeover counts what a node sends when another one, with 1,000 projections, dies.
func countTakeover(t *testing.T, counts *statementCounts) {
	const projections = 2000
	c := counts.setup(t)
	var conns lostConns
	other := c.open(c.dsn, dialing(conns.wrap), pgstore.Options{})
	config := kit.On(hourly, kit.PgStore{Store: other})
	config.FailureDetection, config.GracePeriod = 100*time.Millisecond, time.Millisecond
	c.Start(c.Runtime(config, c.named(projections)...))
	c.owned(projections)
	config = hourly
	config.FailureDetection = 100 * time.Millisecond
	c.Start(c.runtime(config, c.named(projections)...))
	c.Eventually("both nodes have a half", func() bool {
		return value[int](c.bundle,
			"select count(*) from (select owner from millrace.leases group by owner having count(*) = $1) x",
			projections/2) == 2
	})
	c.settle()
	c.during("take 1,000 projections of a dead node over", func() {
		conns.lose()
		c.Eventually("one node has all", func() bool {
			return value[int](c.bundle, "select count(distinct owner) from millrace.leases") == 1
		})
	}, "list_peers")
}

// lostConns are connections that are lost all at once, and cannot be opened again.
type lostConns struct {
	mu    sync.Mutex
	conns []net.Conn
	lost  bool
}

func (l *lostConns) wrap(conn net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	if l.lost {
		_ = conn.Close()
	}
	return conn
}

func (l *lostConns) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}
