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
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// watched makes a logger and what it was told.
func watched() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	return zap.New(core), logs
}

// lock takes a lock in a connection of its own until release is called.
func (b *bundle) lock(sql string) (release func()) {
	b.t.Helper()
	conn, err := pgx.Connect(b.ctx, b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = conn.Close(context.WithoutCancel(b.ctx)) })
	b.t.Cleanup(release)
	if _, err := conn.Exec(b.ctx, "begin; "+sql); err != nil {
		b.t.Fatal(err)
	}
	return release
}

// reaches waits for what was appended, for as long as only a hang takes.
func (b *bundle) reaches(rt *millrace.Runtime, id millrace.ProjectionID, position int64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	if err := rt.WaitFor(ctx, id, position); err != nil {
		status, _ := rt.Status(b.ctx)
		b.t.Fatalf("%v; %+v", err, status)
	}
}

func TestProjectionGoesOnByItselfAfterALateHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	id := millrace.ProjectionID{Name: "p"}
	rt := b.runtime(millrace.Config{LeaseDuration: 3 * time.Second, HeartbeatInterval: 100 * time.Millisecond, PollInterval: 100 * time.Millisecond},
		millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	b.reaches(rt, id, b.append("a", 1).Positions[0])
	release := b.lock("lock table millrace.nodes in exclusive mode") // which heartbeats need
	var last int64
	b.eventually("the projection waits for a heartbeat", func() bool {
		last = b.append("a", 1).Positions[0]
		return b.status(rt, "p").State == millrace.StateWaiting
	})
	release()
	b.reaches(rt, id, last)
	b.reaches(rt, id, b.append("a", 1).Positions[0])
	b.verify("p")
}

func TestClaimingGoesOnAfterAClaimThatFailedLate(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	log, logs := watched()
	rt := b.runtime(millrace.Config{QueryTimeout: 400 * time.Millisecond, ReconcileInterval: 50 * time.Millisecond, Logger: log},
		millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	b.reaches(rt, millrace.ProjectionID{Name: "p"}, b.append("a", 1).Positions[0])
	release := b.lock("lock table millrace.leases in access exclusive mode")
	b.eventually("a claim fails", func() bool { return logs.FilterMessageSnippet("claiming leases failed").Len() > 0 })
	release()
	tenant, err := b.store.CreateTenant(b.ctx, "late")
	if err != nil {
		t.Fatal(err)
	}
	result, err := tenant.Append(b.ctx, "a", event.Any, event.Event{Type: "counted"})
	if err != nil {
		t.Fatal(err)
	}
	b.reaches(rt, millrace.ProjectionID{Tenant: "late", Name: "p"}, result.Positions[0])
}

func TestLongWaitForASlotShutsNothingDown(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	log, logs := watched()
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	slow := func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		entered <- struct{}{}
		<-leave
		return recordIn(ctx, tx, "slow", events)
	}
	rt := b.runtime(millrace.Config{MaxBatches: 1, QueryTimeout: 100 * time.Millisecond, Logger: log},
		millrace.Projection{Name: "slow", Handler: pgstore.Batch(slow), Timeout: time.Minute},
		millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p")), Timeout: 100 * time.Millisecond, Retry: impatient})
	b.start(rt)
	b.append("a", 1)
	<-entered
	last := b.append("a", 3).Positions[2]
	<-time.After(2 * time.Second) // four times as long as a batch and its calls may take
	if p := b.status(rt, "p"); p.State == millrace.StateWaiting || p.State == millrace.StateFailed {
		t.Errorf("while another has the slot it is %s: %s", p.State, p.Reason)
	}
	close(leave)
	for _, name := range []string{"slow", "p"} {
		b.reaches(rt, millrace.ProjectionID{Name: name}, last)
		b.verify(name)
	}
	for _, message := range []string{"database unusable", "fault not counted", "stuck"} {
		for _, entry := range logs.FilterMessageSnippet(message).All() {
			t.Errorf("%s: %v", entry.Message, entry.ContextMap())
		}
	}
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
	b.store = b.elsewhere(pgstore.Options{SessionDSN: through})
	id := millrace.ProjectionID{Name: "p"}
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	b.reaches(rt, id, b.append("a", 1).Positions[0])
	began := time.Now()
	proxy.hangUp()
	ctx, cancel := context.WithTimeout(b.ctx, 15*time.Second)
	defer cancel()
	for back := false; !back; {
		status, err := rt.Status(ctx)
		if err != nil {
			t.Fatalf("the session does not come back: %v", err)
		}
		back = status.Session.Connected && status.Session.Since.After(began)
	}
	b.reaches(rt, id, b.append("a", 1).Positions[0])
	b.verify("p")
}
