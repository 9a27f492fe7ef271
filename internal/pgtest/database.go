package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// TB is what is needed of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

const databaseLimit = time.Minute

// owned are the servers and poolers of this process that were started and not stopped.
var owned servers

type stopper interface {
	Stop(ctx context.Context) error
}

type servers struct {
	mu  sync.Mutex
	set map[stopper]struct{}
}

func (o *servers) add(s stopper) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set == nil {
		o.set = map[stopper]struct{}{}
	}
	o.set[s] = struct{}{}
}

func (o *servers) remove(s stopper) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.set, s)
}

func (o *servers) all() []stopper {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []stopper
	for s := range o.set {
		all = append(all, s)
	}
	return all
}

// StopAll stops every server and pooler that this process has started, the shared server of [Database] included. It belongs at the
// very end of a process: testmain.Run calls it.
func StopAll(ctx context.Context) error {
	var errs []error
	for _, s := range owned.all() {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(errs...)
}

// shared returns where databases are created: on the server of DATABASE_URL, otherwise on one private server that all
// tests of the process share.
var shared = sync.OnceValues(func() (dsn string, err error) {
	if dsn := os.Getenv("DATABASE_URL"); dsn != "" {
		return dsn, nil
	}
	s, err := Start(context.Background(), Options{InMemory: true, Settings: map[string]string{"max_connections": "400"}})
	if err != nil {
		return "", err
	}
	return s.DSN("postgres"), nil
})

// Database returns how to connect to a new, empty database on a server that the tests of this process share, and drops
// it at the end of the test, with whoever is still connected. The user is a superuser of the private server; on that of
// DATABASE_URL it is whoever stands there, who must be allowed to create databases.
func Database(tb TB) string {
	tb.Helper()
	server, err := shared()
	if err != nil {
		tb.Fatalf("start the tests' PostgreSQL: %v", err)
	}
	name := databaseName(tb.Name())
	// template0, because nobody can be connected to it: a database in use cannot be copied.
	if err := execute(server, "create database "+name+" template template0"); err != nil {
		tb.Fatalf("create database %s: %v", name, err)
	}
	dsn, err := WithDatabase(server, name)
	if err != nil {
		tb.Fatalf("connect to database %s: %v", name, err)
	}
	tb.Cleanup(func() {
		tb.Helper()
		if err := drop(server, dsn, name); err != nil {
			tb.Fatalf("drop database %s: %v", name, err)
		}
	})
	return dsn
}

// Private returns a server of the test's own, to be restarted and killed, and stops it at the end of the test. Where
// DATABASE_URL stands in for binaries that are not installed, the test is skipped.
func Private(tb TB, options Options) *Server {
	tb.Helper()
	options.InMemory = true
	s, err := Start(context.Background(), options)
	if errors.Is(err, ErrNotFound) && os.Getenv("DATABASE_URL") != "" {
		tb.Skipf("needs a server of its own: %v", err)
	}
	if err != nil {
		tb.Fatalf("start a private PostgreSQL: %v", err)
	}
	tb.Cleanup(func() {
		tb.Helper()
		if err := s.Stop(context.Background()); err != nil {
			tb.Fatalf("%v", err)
		}
	})
	return s
}

// WithDatabase returns dsn, a URL or a list of keywords and values, for another database of the same server.
func WithDatabase(dsn, database string) (string, error) {
	if !isURL(dsn) {
		return WithSetting(dsn, "dbname", database)
	}
	u, err := parseURL(dsn)
	if err != nil {
		return "", err
	}
	query := settings(u)
	query.Del("dbname")
	query.Del("database")
	u.Path = "/" + database
	return withSettings(u, query), nil
}

// WithSetting returns dsn, a URL or a list of keywords and values, with one more setting in it, such as
// pool_max_conns.
func WithSetting(dsn, name, value string) (string, error) {
	if !isURL(dsn) {
		return fmt.Sprintf("%s %s='%s'", dsn, name, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)), nil
	}
	u, err := parseURL(dsn)
	if err != nil {
		return "", err
	}
	query := settings(u)
	query.Set(name, value)
	return withSettings(u, query), nil
}

// In a connection URL, other than in those of the web, a plus sign is a plus sign and not a space.
func settings(u *url.URL) url.Values {
	query, _ := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	return query
}

func withSettings(u *url.URL, query url.Values) string {
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String()
}

func isURL(dsn string) bool { return strings.Contains(dsn, "://") }

func parseURL(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("the connection string is no URL") // the reason would repeat the password
	}
	return u, nil
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName needs no quoting. It is unique among all processes that use a server, and tells which test it is of.
func databaseName(test string) string {
	readable := strings.Trim(notInName.ReplaceAllString(strings.ToLower(test), "_"), "_")
	return fmt.Sprintf("millrace_%08x_%s", rand.Uint32(), readable[:min(len(readable), 40)])
}

// drop also rolls back prepared transactions, which would hold the database against any force.
func drop(server, dsn, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	var prepared []string
	err := connected(ctx, dsn, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, "select format('rollback prepared %L', gid) from pg_catalog.pg_prepared_xacts "+
			"where database = current_database()")
		var err error
		if prepared, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		for _, rollback := range prepared {
			if _, err := conn.Exec(ctx, rollback); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return execute(server, "drop database "+name+" with (force)")
}

func execute(dsn, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	return connected(ctx, dsn, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

func connected(ctx context.Context, dsn string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}
