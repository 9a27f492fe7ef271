package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestProjectionContinuesByItselfAfterALateHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Running(millrace.Config{
		Store: tuning.Settings{Heartbeat: 100 * time.Millisecond}, LeaseDuration: 3 * time.Second,
		PollInterval: 100 * time.Millisecond,
	},
		b.Recorders("p")...)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	release := b.lock("lock table millrace.nodes in exclusive mode") // which heartbeats need
	var last int64
	b.Eventually("the projection waits for a heartbeat", func() bool {
		last = b.Append("a", 1).Positions[0]
		return b.Status(rt, "p").State == admin.StateWaiting
	})
	release()
	b.Reaches(rt, "p", last)
	b.Applied(rt, b.Append("a", 1).Positions[0], "p")
}

func TestClaimingContinuesAfterAClaimThatFailedLate(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	log, logs := kit.Logs()
	rt := b.Running(millrace.Config{
		Store: tuning.Settings{Query: 2 * time.Second, Reconcile: 50 * time.Millisecond}, Logger: log,
	},
		b.Recorders("p")...)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	release := b.lock("lock table millrace.leases in access exclusive mode")
	b.Eventually("a claim fails", func() bool { return logs.FilterMessageSnippet("claiming leases failed").Len() > 0 })
	release()
	late := b.Tenants(2)[1]
	b.ReachesOf(rt, late.Name(), "p", b.AppendTo(late, "a", 1))
}

// deaf is a proxy in front of the database. Its connections can end for the client alone, so that the server does not
// notice, as if the network lost the packets.
type deaf struct {
	ln   net.Listener
	mu   sync.Mutex
	ends [][2]net.Conn // client and server
	all  sync.WaitGroup
}

func newDeaf(t *testing.T, dsn string) (d *deaf, through string) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	d = &deaf{}
	d.ln, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	d.all.Go(func() { d.accept(network, address) })
	t.Cleanup(func() {
		_ = d.ln.Close()
		d.mu.Lock()
		for _, pair := range d.ends {
			_, _ = pair[0].Close(), pair[1].Close()
		}
		d.mu.Unlock()
		d.all.Wait()
	})
	at := d.ln.Addr().(*net.TCPAddr)
	through = fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s sslmode=disable", at.Port, config.User,
		config.Database)
	if config.Password != "" {
		through += fmt.Sprintf(" password='%s'", config.Password)
	}
	return d, through
}

func (d *deaf) accept(network, address string) {
	for {
		client, err := d.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(network, address)
		if err != nil {
			_ = client.Close()
			continue
		}
		d.mu.Lock()
		d.ends = append(d.ends, [2]net.Conn{client, server})
		d.mu.Unlock()
		d.all.Go(func() { _, _ = io.Copy(server, client) })
		d.all.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
	}
}

// hangUp ends all connections for the clients.
func (d *deaf) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pair := range d.ends {
		_ = pair[0].Close()
	}
}

func TestNodeReconnectsThoughTheServerTakesItsConnectionForAlive(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	proxy, through := newDeaf(t, b.dsn)
	b.use(b.elsewhere(pgstore.Options{SessionDSN: through}))
	rt := b.Running(millrace.Config{}, b.Recorders("p")...)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	began := time.Now()
	proxy.hangUp()
	b.reconnects(rt, began)
	b.Applied(rt, b.Append("a", 1).Positions[0], "p")
}

func TestFailureThatWasRepairedWhileNoNodeRanIsNotReported(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 10)
	b.Idle(b.Recorders("p")...)
	b.exec("alter table millrace_default.events rename to lost")
	stop := b.Start(b.Runtime(millrace.Config{}, b.Recorders("p")...))
	remote := b.Runtime(millrace.Config{}, b.Recorders("other")...)
	b.Is(remote, "p", admin.StateFailed)
	stop()
	b.exec("alter table millrace_default.lost rename to events")
	b.Append("a", 3)
	b.Idle(b.Recorders("p")...)
	b.Verify("p")
}

// A node with a session gets no notification that a lease of it was taken, and a projection that is at rest writes
// nothing that would be refused.
func TestLeaseThatWasTakenUnnoticedIsGivenUpAndClaimedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Running(millrace.Config{Store: tuning.Settings{Reconcile: 20 * time.Millisecond}}, b.Recorders("p")...)
	b.Is(rt, "p", admin.StateLive)
	const other = "11111111-1111-1111-1111-111111111111"
	b.exec(`insert into millrace.nodes (id, projections, tenants, session_key, expires_at)
		values ('` + other + `', '{q}', '{}', 1, now() + interval '1 hour')`)
	b.exec("update millrace.leases set owner = '" + other + "', epoch = epoch + 1")
	b.Eventually("it has lost the lease",
		func() bool { p := b.Status(rt, "p"); return p.Owner == other && p.State == admin.StateLive })
	b.exec("update millrace.leases set owner = null")
	b.Applied(rt, b.Append("a", 3).Positions[2], "p")
}

// The session connection of the node goes another way than its pool, so that its heartbeats would keep its share from
// the others for ever.
func TestNodeWhosePoolIsBrokenLeavesItsShareToOthersUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	quick := millrace.Config{
		Store:         tuning.Settings{Reconcile: 100 * time.Millisecond, Heartbeat: 300 * time.Millisecond},
		LeaseDuration: 2 * time.Second,
	}
	rt := b.Another(quick, b.Recorders("a", "b", "c", "d")...)
	b.Start(rt)
	var broken atomic.Bool
	quick = kit.On(quick, b.open(b.dsn, func(config *pgxpool.Config) {
		config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if broken.Load() {
				return errors.New("no way through")
			}
			return nil
		}
		config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return !broken.Load(), nil }
	}, pgstore.Options{SessionDSN: b.dsn}))
	b.Start(b.Runtime(quick, b.Recorders("a", "b", "c", "d")...))
	b.Share(rt, 2)
	broken.Store(true)
	b.Share(rt, 1)
	broken.Store(false)
	b.Share(rt, 2)
}
