package program

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// otherConnections is how many connections a program needs besides those of its writers: for projections, status
	// and checks.
	otherConnections = 12
	createLimit      = 30 * time.Second
)

// Layout describes what a program creates in a database.
type Layout struct {
	// Tables is the schema of the program's own tables, Store that of its store.
	Tables, Store string
	// SQL creates the tables.
	SQL string
	// Mark is the comment on the schemas of the program.
	Mark string
}

// Database is a pool of connections and a store, in schemas of the program's own.
type Database struct {
	Pool  *pgxpool.Pool
	Store *pgstore.Store

	layout  Layout
	created bool // by this Database
}

// PrivateServer starts a server that only this user can reach, with fsync on, as in production. The caller stops it.
func PrivateServer(ctx context.Context, writers int, settings map[string]string) (*pgtest.Server, error) {
	all := map[string]string{"fsync": "on", "max_connections": strconv.Itoa(writers + otherConnections + 20)}
	for name, value := range settings {
		all[name] = value
	}
	return pgtest.Start(ctx, pgtest.Options{NoTCP: true, Settings: all})
}

// Open connects to a database, with connections for this many writers. It creates nothing.
func Open(ctx context.Context, dsn string, layout Layout, writers int, log *zap.Logger) (*Database, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	config.MaxConns = int32(writers + otherConnections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	store, err := pgstore.OpenPool(ctx, pool, pgstore.Options{Schema: layout.Store,
		Logger: slog.New(zapslog.NewHandler(log.Core()))})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Database{Pool: pool, Store: store, layout: layout}, nil
}

// Schemas returns the schemas of the program, in the order in which they are dropped.
func (d *Database) Schemas() []string {
	return []string{d.layout.Tables, d.layout.Store, d.Store.EventsSchema()}
}

// Create creates all schemas and tables, even if it is interrupted. If one of the schemas exists, it fails with a
// *TakenError or ErrUnderWay.
func (d *Database) Create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	defer cancel()
	err := Claim(ctx, d.Pool, d.Schemas(), func(tx pgx.Tx) error {
		for _, schema := range []string{d.layout.Tables, d.layout.Store} {
			sql := strings.NewReplacer("{schema}", schema, "{mark}", d.layout.Mark)
			if _, err := tx.Exec(ctx, sql.Replace(createSchema), pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, d.layout.SQL, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	d.created = true
	return d.Store.Migrate(ctx)
}

// Drop removes the schemas that Create created, and nothing else.
func (d *Database) Drop(ctx context.Context) error {
	if !d.created {
		return nil
	}
	return Cleanup(ctx, func(ctx context.Context) error { return Remove(ctx, d.Pool, d.Schemas()) })
}

// Close ends the connections.
func (d *Database) Close() {
	d.Store.Close()
	d.Pool.Close()
}
