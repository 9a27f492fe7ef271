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

const (
	fleet = 3 // nodes of a cluster, beside the spare one
	// app is the role that nodes and writers have: no superuser, as in production. That of the second node is another one,
	// of the same rights: the other nodes must not end its sessions, so that nothing but the fence keeps it from a commit.
	app        = "millrace_chaos"
	appApart   = app + "_apart"
	apart      = 1 // which node has it
	appsPrefix = app + "%"
	// maxConnections is enough for two clusters, and so few that somebody can take all of them.
	maxConnections = 110
)

// theServer is the private server that all tests of the package share. Those that strike it run alone.
var theServer = sync.OnceValues(func() (*pgtest.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server, err := pgtest.Start(ctx, pgtest.Options{Settings: map[string]string{
		"max_connections": fmt.Sprint(maxConnections), "superuser_reserved_connections": "10",
		"log_line_prefix": "%m [%p] %a ",
	}})
	if err != nil {
		return nil, err
	}
	return server, execute(ctx, server.DSN("postgres"), "create role "+app+" login; create role "+appApart+" login in role "+app)
})

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
	t        testing.TB
	ctx      context.Context
	server   *pgtest.Server
	database string
	upstream string        // the server's address
	admin    *pgxpool.Pool // of the superuser, who may write when others may not
	store    *pgstore.Store
	nodes    []*node
	spare    *node // one more, that comes and goes
	writers  *writers
	dir      string
	times    times

	withheld atomic.Int32 // faults that keep what poison events need

	mu       sync.Mutex
	noticed  []finding // about dead letters, while everything was under way
	troubles []trouble
	away     []nobody
	expected map[string][]int64 // positions that are to be parked by deadly, by tenant
	struck   map[string]int     // faults by name
	repeat   string             // how to run the same again
	schedule string
}

// options say what a test needs of its cluster.
type options struct {
	limit  time.Duration // for the whole test
	seed   uint64        // of what the writers do
	times  times         // that the nodes live by
	nodes  int           // beside the spare one; 0: fleet
	repeat string        // how to run the same again
}

// setup makes a cluster of nodes that own everything and of writers that append.
func setup(t testing.TB, o options) *cluster {
	t.Helper()
	server, err := theServer()
	if errors.Is(err, pgtest.ErrNotFound) && os.Getenv("DATABASE_URL") != "" {
		t.Skipf("needs a server of its own: %v", err)
	}
	if err != nil {
		t.Fatalf("start a private PostgreSQL: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	t.Cleanup(cancel)
	if server.PID() == 0 { // an earlier test failed while it was down
		if err := server.StartAgain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{t: t, ctx: ctx, server: server, database: fmt.Sprintf("chaos_%08x", rand.Uint32()), dir: t.TempDir(), repeat: o.repeat, times: o.times.withDefaults(),
		expected: make(map[string][]int64), struck: make(map[string]int)}
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

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// makeDatabase makes the database and, at the end, drops it.
func (c *cluster) makeDatabase() error {
	server := c.server.DSN("postgres")
	if err := execute(c.ctx, server, fmt.Sprintf("create database %s owner %s template template0", c.database, app)); err != nil {
		return fmt.Errorf("make a database: %w", err)
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

// dsn is how a role connects to the database, by the socket.
func (c *cluster) dsn(role string, settings ...string) (string, error) {
	dsn := strings.Replace(c.server.DSN(c.database), "postgres@", role+"@", 1)
	for i := 0; i < len(settings); i += 2 {
		var err error
		if dsn, err = pgtest.WithSetting(dsn, settings[i], settings[i+1]); err != nil {
			return "", err
		}
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
	tcp, err := url.Parse(c.server.TCPDSN(c.database))
	if err != nil {
		return err
	}
	c.upstream = tcp.Host
	return nil
}

func (c *cluster) makeTables() error {
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

// addNode makes a node that is not started.
func (c *cluster) addNode() *node {
	c.t.Helper()
	n := &node{name: fmt.Sprint("n", len(c.nodes)+1), times: c.times}
	var err error
	if n.proxy, err = newProxy(n.name, c.upstream); err != nil {
		c.t.Fatal(err)
	}
	n.log = filepath.Join(c.dir, n.name+".log")
	role := app
	if len(c.nodes) == apart {
		role = appApart
	}
	n.dsn = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&pool_max_conns=6&application_name=%s", role, n.proxy.address(), c.database, n.name)
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
