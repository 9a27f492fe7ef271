package chaos_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// fleet is how many nodes a cluster has, without the spare one.
const fleet = 3

// cluster is a database on its servers, and the nodes and writers that use it.
type cluster struct {
	t   testing.TB
	ctx context.Context
	*servers
	options  options
	database string
	admin    *pgxpool.Pool // of the superuser, who may write when others may not
	store    *pgstore.Store
	nodes    []*node
	spare    *node // also in nodes; it joins and leaves
	writers  *writers
	dir      string
	// followers share a store with the writers, and so are woken by their appends.
	followers *followers

	withheld     atomic.Int32 // how many faults withhold the dependency of poison events
	prepared     sync.Map     // names of the prepared transactions that a fault resolves later
	tenantStates sync.RWMutex // held shared by faults that archive or pause tenants
	pauses       sync.Mutex   // held by faults that pause tenants
	split        sync.Map     // projections that have been split

	mu       sync.Mutex
	noticed  []finding // contradictions between dead letters, found during the test
	troubles []trouble
	restores []trouble // of the guest
	outages  []outage
	closures []closure
	erased   []erased
	expected map[string][]stored // events that the projection deadly must park, by tenant
	struck   map[string]int      // faults by name
	failures []string            // what failed the test
	schedule string
}

// options configure a cluster.
type options struct {
	limit  time.Duration // of the whole test
	seed   uint64        // of what the writers do
	times  times         // of the nodes
	nodes  int           // without the spare one; 0: fleet
	rest   int           // how many times writeEvery a writer pauses; 0: 1
	own    bool          // servers of its own: a primary and a standby, with poolers for one of the nodes
	repeat string        // the command that repeats the test; empty: go test -run
}

// setup returns a cluster whose nodes own every projection and whose writers append.
func setup(t testing.TB, o options) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	t.Cleanup(cancel)
	o.times = o.times.withDefaults()
	o.repeat = cmp.Or(o.repeat, fmt.Sprintf("go test -race ./tests/chaos -run '^%s$'",
		strings.ReplaceAll(t.Name(), "/", "$/^")))
	c := &cluster{t: t, ctx: ctx, options: o, database: fmt.Sprintf("chaos_%08x", rand.Uint32()), dir: t.TempDir(),
		expected: make(map[string][]stored), struck: make(map[string]int)}
	var err error
	c.servers, err = chooseServers(ctx, t, o.own)
	if errors.Is(err, pgtest.ErrNotFound) && os.Getenv(pgtest.Variable) != "" {
		t.Skipf("needs a server of its own: %v", err)
	}
	c.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			c.dump()
		}
	})
	c.createDatabase()
	c.connect()
	c.createTables()
	c.maintain()
	c.writers = startWriters(ctx, c.store, o.seed, writerCount, cmp.Or(o.rest, 1), "w", tenants...)
	c.followers, err = startFollowers(ctx, c.store, tenants...)
	c.must(err)
	t.Cleanup(func() { c.writers.stop(); c.followers.stop() })
	for range cmp.Or(o.nodes, fleet) {
		c.addNode().start()
	}
	c.spare = c.addNode()
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.halt()
			n.proxy.disconnect()
		}
	})
	c.must(c.live())
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.failed(err)
		c.t.FailNow()
	}
}

// failed fails the test. The reason is printed at once, and again after the logs.
func (c *cluster) failed(why any) {
	c.t.Helper()
	c.t.Error(why)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, fmt.Sprint(why))
}

// wait returns after d, or when the test's time is over.
func (c *cluster) wait(d time.Duration) { kit.Pass(c.ctx, d) }

// createDatabase creates the database. On the shared server, it drops it at the end.
func (c *cluster) createDatabase() {
	server := c.server().DSN("postgres")
	c.must(execOnce(c.ctx, server, fmt.Sprintf("create database %s owner %s template template0", c.database, app)))
	if c.options.own {
		return
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := execOnce(ctx, server, "drop database "+c.database+" with (force)"); err != nil {
			c.t.Errorf("drop the database: %v", err)
		}
	})
}

// dsn connects a role to the database on whichever server is the primary. settings are names and values in turn.
func (c *cluster) dsn(role string, settings ...string) string {
	dsn := strings.Replace(pgtest.HostsDSN(c.database, "primary", c.addresses...), "postgres@", role+"@", 1)
	for i := 0; i < len(settings); i += 2 {
		dsn += "&" + url.QueryEscape(settings[i]) + "=" + url.QueryEscape(settings[i+1])
	}
	return dsn
}

// connect opens the connections of the test process.
func (c *cluster) connect() {
	var err error
	c.admin, err = pgxpool.New(c.ctx, c.dsn("postgres", "pool_max_conns", "4", "default_transaction_read_only", "off",
		"application_name", "harness", "statement_timeout", "20000"))
	c.must(err)
	c.t.Cleanup(c.admin.Close)
	c.store, err = pgstore.Open(c.ctx, c.dsn(app, "pool_max_conns",
		fmt.Sprint(writerCount+guestWriters+4), "application_name", "writers"), pgstore.Options{})
	c.must(err)
	c.t.Cleanup(c.store.Close)
}

func (c *cluster) createTables() {
	c.must(c.exec(fmt.Sprintf(temporaryFiles, c.database)))
	c.must(c.store.Migrate(c.ctx))
	for _, tenant := range tenants[1:] {
		_, err := c.store.CreateTenant(c.ctx, tenant)
		c.must(err)
	}
	for _, sql := range []string{appliedTable, dependencyTable, ownershipLogSQL(c.options.times.Lease)} {
		c.must(execOnce(c.ctx, c.dsn(app), sql))
	}
	c.must(c.exec("insert into public.dependency (tenant) select unnest($1::text[])",
		append([]string{guest}, tenants...)))
}

// sessionAttrs are the ways in which nodes with several hosts ask for the primary.
var sessionAttrs = []string{"read-write", "primary"}

// connections are the pool sizes of the nodes. With the smallest, more batches wait for a connection than run at once.
var connections = []int{4, 6, 6}

// addNode adds a node without starting it.
func (c *cluster) addNode() *node {
	c.t.Helper()
	at := len(c.nodes)
	n := &node{name: fmt.Sprint("n", at+1), times: c.options.times}
	n.log = filepath.Join(c.dir, n.name+".log")
	var upstreams []string
	if at == pooled {
		for _, pooler := range c.poolers {
			upstreams = append(upstreams, pooler.Address())
		}
	}
	var err error
	n.proxy, err = newProxy(append(upstreams, c.addresses...)...)
	c.must(err)
	dsn := func(links []*link) string {
		var addresses []string
		for _, l := range links {
			addresses = append(addresses, l.address)
		}
		return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&target_session_attrs=%s&application_name=%s",
			app, strings.Join(addresses, ","), c.database, sessionAttrs[at%len(sessionAttrs)], n.name)
	}
	n.pool = n.proxy.links[:len(c.addresses)]
	n.dsn = fmt.Sprintf("%s&pool_max_conns=%d", dsn(n.pool), connections[at%len(connections)])
	if session := n.proxy.links[len(c.addresses):]; len(session) > 0 {
		n.sessionDSN = dsn(session)
		n.dsn += "&default_query_exec_mode=cache_describe"
	}
	c.nodes = append(c.nodes, n)
	return n
}
