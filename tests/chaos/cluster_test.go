package chaos_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

// fleet is how many nodes a cluster has, beside the spare one.
const fleet = 3

// execute runs a statement over a connection of its own.
func execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// cluster is a server with a database for one test, and the nodes and writers that work on it.
type cluster struct {
	t   testing.TB
	ctx context.Context
	*servers
	database string
	admin    *pgxpool.Pool // of the superuser, who may write when others may not
	store    *pgstore.Store
	nodes    []*node
	spare    *node // one more, that comes and goes
	writers  *writers
	dir      string
	times    times

	withheld atomic.Int32 // faults that keep what poison events need
	prepared sync.Map     // the names of prepared transactions that a fault left behind, and resolves later

	mu       sync.Mutex
	noticed  []finding // about dead letters, while everything was under way
	troubles []trouble
	away     []nobody
	expected map[string][]stored // events that are to be parked by deadly, by tenant
	struck   map[string]int      // faults by name
	repeat   string              // how to run the same again
	schedule string
}

// options say what a test needs of its cluster.
type options struct {
	limit  time.Duration // for the whole test
	seed   uint64        // of what the writers do
	times  times         // that the nodes live by
	nodes  int           // beside the spare one; 0: fleet
	own    bool          // it has servers of its own: a primary and a standby, and poolers for one of the nodes
	repeat string        // how to run the same again
}

// clusters bounds how many clusters there are at a time: the server that they share has connections for no more.
var clusters = make(chan struct{}, 2)

// setup makes a cluster of nodes that own everything and of writers that append.
func setup(t testing.TB, o options) *cluster {
	t.Helper()
	clusters <- struct{}{}
	t.Cleanup(func() { <-clusters })
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	t.Cleanup(cancel)
	all, err := chooseServers(ctx, t, o.own)
	if errors.Is(err, pgtest.ErrNotFound) && os.Getenv("DATABASE_URL") != "" {
		t.Skipf("needs a server of its own: %v", err)
	}
	if err != nil {
		t.Fatalf("start a private PostgreSQL: %v", err)
	}
	c := &cluster{t: t, ctx: ctx, servers: all, database: fmt.Sprintf("chaos_%08x", rand.Uint32()), dir: t.TempDir(), repeat: o.repeat, times: o.times.withDefaults(),
		expected: make(map[string][]stored), struck: make(map[string]int)}
	t.Cleanup(func() {
		if t.Failed() {
			c.tell()
		}
	})
	for _, do := range []func() error{c.makeDatabase, c.connect, c.makeTables} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	c.takeCare()
	c.writers = startWriters(ctx, c.store, o.seed)
	t.Cleanup(c.writers.stop)
	for range cmp.Or(o.nodes, fleet) {
		c.addNode().start()
	}
	c.spare = c.addNode()
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.halt()
			n.proxy.cut()
		}
	})
	c.must(c.live())
	return c
}

// chooseServers returns what a cluster stands on: the shared server, or servers of its own, which end with the test.
func chooseServers(ctx context.Context, t testing.TB, own bool) (*servers, error) {
	if own {
		all, err := startServers(ctx)
		if err == nil {
			t.Cleanup(func() {
				if err := all.stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		return all, err
	}
	server, err := theServer()
	if err == nil && server.PID() == 0 { // an earlier test failed while it was down
		err = server.StartAgain(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &servers{primary: server, addresses: []string{server.Address()}}, nil
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// makeDatabase makes the database and, at the end, drops it.
func (c *cluster) makeDatabase() error {
	server := c.server().DSN("postgres")
	if err := execute(c.ctx, server, fmt.Sprintf("create database %s owner %s template template0", c.database, app)); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	if c.follower() != nil {
		return nil // it goes with its servers
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := execute(ctx, server, "drop database "+c.database+" with (force)"); err != nil {
			c.t.Errorf("drop the database: %v", err)
		}
	})
	return nil
}

// dsn is how a role connects to the database, on whatever server is the primary.
func (c *cluster) dsn(role string, settings ...string) (string, error) {
	dsn := strings.Replace(pgtest.HostsDSN(c.database, "primary", c.addresses...), "postgres@", role+"@", 1)
	for i := 0; i < len(settings); i += 2 {
		dsn += "&" + url.QueryEscape(settings[i]) + "=" + url.QueryEscape(settings[i+1])
	}
	return dsn, nil
}

// connect opens the harness's own connections.
func (c *cluster) connect() error {
	dsn, err := c.dsn("postgres", "pool_max_conns", "4", "default_transaction_read_only", "off", "application_name", "harness", "statement_timeout", "20000")
	if err != nil {
		return err
	}
	if c.admin, err = pgxpool.New(c.ctx, dsn); err != nil {
		return err
	}
	c.t.Cleanup(c.admin.Close)
	if dsn, err = c.dsn(app, "pool_max_conns", fmt.Sprint(writerCount+2), "application_name", "writers"); err != nil {
		return err
	}
	if c.store, err = pgstore.Open(c.ctx, dsn, pgstore.Options{}); err != nil {
		return err
	}
	c.t.Cleanup(c.store.Close)
	return nil
}

func (c *cluster) makeTables() error {
	if err := c.exec(fmt.Sprintf(temporaryFiles, c.database)); err != nil {
		return err
	}
	if err := c.store.Migrate(c.ctx); err != nil {
		return err
	}
	for _, tenant := range tenants[1:] {
		if _, err := c.store.CreateTenant(c.ctx, tenant); err != nil {
			return err
		}
	}
	for _, sql := range []string{appliedTable, "create index on public.applied (tenant, projection, id)", outsideTable, journalSQL(c.times.Lease)} {
		if _, err := c.store.Pool().Exec(c.ctx, sql); err != nil {
			return err
		}
	}
	_, err := c.store.Pool().Exec(c.ctx, "insert into public.outside (tenant) select unnest($1::text[])", tenants)
	return err
}

// sessionAttrs are the ways in which nodes with several hosts ask for the primary.
var sessionAttrs = []string{"read-write", "primary"}

// connections are how many each node has in its pool. With the fewest, more batches wait for their turn than run at once.
var connections = []int{4, 6, 6}

// addNode makes a node that is not started.
func (c *cluster) addNode() *node {
	c.t.Helper()
	n := &node{name: fmt.Sprint("n", len(c.nodes)+1), times: c.times}
	upstreams := c.addresses
	if len(c.nodes) == pooled && len(c.poolers) > 0 {
		upstreams = nil
		for _, pooler := range c.poolers {
			upstreams = append(upstreams, pooler.Address())
		}
		upstreams = append(upstreams, c.addresses...)
	}
	var err error
	if n.proxy, err = newProxy(upstreams...); err != nil {
		c.t.Fatal(err)
	}
	n.log = filepath.Join(c.dir, n.name+".log")
	role := app
	if len(c.nodes) == apart {
		role = appApart
	}
	dsn := func(links []*link) string {
		var addresses []string
		for _, l := range links {
			addresses = append(addresses, l.address)
		}
		return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&target_session_attrs=%s&application_name=%s",
			role, strings.Join(addresses, ","), c.database, sessionAttrs[len(c.nodes)%len(sessionAttrs)], n.name)
	}
	n.pool = n.proxy.links[:len(c.addresses)]
	n.dsn = fmt.Sprintf("%s&pool_max_conns=%d", dsn(n.pool), connections[len(c.nodes)%len(connections)])
	if session := n.proxy.links[len(c.addresses):]; len(session) > 0 {
		n.sessionDSN = dsn(session)
		n.dsn += "&default_query_exec_mode=cache_describe"
	}
	c.nodes = append(c.nodes, n)
	return n
}

// exec runs a statement as superuser, again while the server is away.
func (c *cluster) exec(sql string, args ...any) error {
	return c.retried(func(ctx context.Context) error {
		_, err := c.admin.Exec(ctx, sql, args...)
		return err
	})
}

// retried does something until the server is there to do it.
func (c *cluster) retried(do func(ctx context.Context) error) error {
	limit, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	for {
		err := do(limit)
		if limit.Err() != nil || !isOutage(err) {
			return err
		}
		pass(limit, 30*time.Millisecond)
	}
}

// isOutage tells whether err comes from a server that is away, or does not take anything. The library has its own table for
// that, which must not be trusted here.
func isOutage(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		class := refused.Code[:2]
		return class == "57" || class == "53" || class == "08" || refused.Code == "25006"
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || pgconn.SafeToRetry(err)
}

// rows reads rows as superuser, again while the server is away.
func rows[T any](c *cluster, scan pgx.RowToFunc[T], sql string, args ...any) (all []T, err error) {
	err = c.retried(func(ctx context.Context) error {
		found, err := c.admin.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(found, scan)
		return err
	})
	return all, err
}
