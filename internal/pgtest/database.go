package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TB is the part of testing.TB that this package uses.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Variable is the environment variable with the DSN of a server for tests. It is not DATABASE_URL, which often names
// the database of a program in production.
const Variable = "MILLRACE_TEST_DATABASE_URL"

const databaseLimit = time.Minute

// stopper is a server, a pooler or a template.
type stopper interface {
	Stop(ctx context.Context) error
}

// owned are the stoppers that this process has started and not stopped.
var owned sync.Map

// StopAll stops every server and pooler that this process has started, including the shared server of [Database]. Call
// it at the very end of a process, as testmain.Run does.
func StopAll(ctx context.Context) (err error) {
	owned.Range(func(s, _ any) bool {
		err = errors.Join(err, s.(stopper).Stop(ctx))
		return true
	})
	return err
}

// stopAtEnd stops s at the end of the test.
func stopAtEnd(tb TB, s stopper) {
	tb.Cleanup(func() {
		tb.Helper()
		if err := s.Stop(context.Background()); err != nil {
			tb.Fatalf("%v", err)
		}
	})
}

// shared returns the DSN of the server on which databases are created: that of Variable, or a private server that all
// tests of the process share.
var shared = sync.OnceValues(func() (dsn string, err error) {
	if dsn := os.Getenv(Variable); dsn != "" {
		return dsn, NotInUse(dsn)
	}
	s, err := Start(context.Background(), Options{InMemory: true,
		Settings: map[string]string{"max_connections": "400"}})
	if err != nil {
		return "", err
	}
	return s.DSN("postgres"), nil
})

// Database returns the DSN of a new, empty database on a server that the tests of this process share. At the end of the
// test it drops the database and ends the remaining connections. The user is a superuser of the private server, or the
// user of [Variable], who must be allowed to create databases.
func Database(tb TB) string {
	tb.Helper()
	return DatabaseOn(tb, Shared(tb))
}

// Shared returns the DSN of the server of [Database].
func Shared(tb TB) string {
	tb.Helper()
	server, err := shared()
	if err != nil {
		tb.Fatalf("start the tests' PostgreSQL: %v", err)
	}
	return server
}

// DatabaseOn is Database on the server of a DSN, whose user must be allowed to create databases.
func DatabaseOn(tb TB, server string) string {
	tb.Helper()
	return databaseFrom(tb, server, "template0") // a database in use cannot be copied; template0 never is
}

// databaseFrom is DatabaseOn with a template, and options of the copy.
func databaseFrom(tb TB, server, template string) string {
	tb.Helper()
	name := databaseName(tb.Name())
	if err := execute(server, "create database "+name+" template "+template); err != nil {
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

// Private returns a server for one test, which may restart and kill it, and stops it at the end of the test. If there
// are no server binaries, but a DSN in [Variable], it skips the test.
func Private(tb TB, options Options) *Server {
	tb.Helper()
	options.InMemory = true
	s, err := Start(context.Background(), options)
	if errors.Is(err, ErrNotFound) && os.Getenv(Variable) != "" {
		tb.Skipf("needs a server of its own: %v", err)
	}
	if err != nil {
		tb.Fatalf("start a private PostgreSQL: %v", err)
	}
	stopAtEnd(tb, s)
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

// WithSetting returns dsn, a URL or a list of keywords and values, with one more setting, such as pool_max_conns.
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

// settings returns the settings of a connection URL, in which, unlike in web URLs, a plus sign is not a space.
func settings(u *url.URL) url.Values {
	query, _ := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	return query
}

func withSettings(u *url.URL, query url.Values) string {
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String()
}

// isURL decides as pgx does.
func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

func parseURL(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("the connection string is not a URL") // the reason would repeat the password
	}
	return u, nil
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName returns a name that needs no quoting, contains the name of the test, and is unique on the server.
func databaseName(test string) string {
	readable := strings.Trim(notInName.ReplaceAllString(strings.ToLower(test), "_"), "_")
	return fmt.Sprintf("millrace_%08x_%s", rand.Uint32(), readable[:min(len(readable), 40)])
}

// drop drops a database. It first rolls back its prepared transactions, which would prevent that.
func drop(server, dsn, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	return connected(ctx, server, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx,
			"select format('rollback prepared %L', gid) from pg_catalog.pg_prepared_xacts where database = $1", name)
		prepared, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if len(prepared) > 0 {
			err = connected(ctx, dsn, func(inside *pgx.Conn) error {
				for _, rollback := range prepared {
					if _, err := inside.Exec(ctx, rollback); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "drop database "+name+" with (force)")
		return err
	})
}

func execute(dsn, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	return connected(ctx, dsn, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

// severalHosts reports whether connections may go to one of several servers.
func severalHosts(config *pgx.ConnConfig) bool {
	return slices.ContainsFunc(config.Fallbacks,
		func(f *pgconn.FallbackConfig) bool { return f.Host != config.Host || f.Port != config.Port })
}

// connected runs do on a connection to the server of a DSN: any that pgstore.Open accepts. If the DSN names several
// hosts, do gets a connection to the one that takes writes.
func connected(ctx context.Context, dsn string, do func(*pgx.Conn) error) error {
	pool, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config := pool.ConnConfig
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // works behind each pooler
	if config.ValidateConnect == nil && severalHosts(config) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}
