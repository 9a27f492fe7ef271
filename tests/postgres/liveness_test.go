package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestProjectionGoesOnByItselfAfterALateHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Runtime(millrace.Config{LeaseDuration: 3 * time.Second, HeartbeatInterval: 100 * time.Millisecond, PollInterval: 100 * time.Millisecond},
		b.Recorders("p")...)
	b.Start(rt)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	release := b.lock("lock table millrace.nodes in exclusive mode") // which heartbeats need
	var last int64
	b.Eventually("the projection waits for a heartbeat", func() bool {
		last = b.Append("a", 1).Positions[0]
		return b.Status(rt, "p").State == millrace.StateWaiting
	})
	release()
	b.Reaches(rt, "p", last)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	b.Verify("p")
}

func TestClaimingGoesOnAfterAClaimThatFailedLate(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	log, logs := kit.Logs()
	rt := b.Runtime(millrace.Config{QueryTimeout: 400 * time.Millisecond, ReconcileInterval: 50 * time.Millisecond, Logger: log},
		b.Recorders("p")...)
	b.Start(rt)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	release := b.lock("lock table millrace.leases in access exclusive mode")
	b.Eventually("a claim fails", func() bool { return logs.FilterMessageSnippet("claiming leases failed").Len() > 0 })
	release()
	tenant, err := b.store.CreateTenant(b.Ctx, "late")
	b.Must(err)
	result, err := tenant.Append(b.Ctx, "a", event.Any, event.Event{Type: "counted"})
	b.Must(err)
	b.ReachesOf(rt, "late", "p", result.Positions[0])
}

// deaf is a proxy in front of the database. Its connections can be made to end for the client alone: the server hears
// nothing of it, as where the network swallows what it is told.
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
	if d.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
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
	through = fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s sslmode=disable", at.Port, config.User, config.Database)
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

// hangUp ends what there is for the clients.
func (d *deaf) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pair := range d.ends {
		_ = pair[0].Close()
	}
}

func TestNodeGetsItsSessionBackFromAConnectionThatTheServerTakesForAlive(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	proxy, through := newDeaf(t, b.dsn)
	b.use(b.elsewhere(pgstore.Options{SessionDSN: through}))
	rt := b.Running(millrace.Config{}, b.Recorders("p")...)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	began := time.Now()
	proxy.hangUp()
	ctx, cancel := context.WithTimeout(b.Ctx, 15*time.Second)
	defer cancel()
	for back := false; !back; {
		status, err := rt.Status(ctx)
		if err != nil {
			t.Fatalf("the session does not come back: %v", err)
		}
		back = status.Session.Connected && status.Session.Since.After(began)
	}
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	b.Verify("p")
}
