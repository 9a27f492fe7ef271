package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// readSchema holds the read models; who creates it owns the run.
	readSchema = "demo"
	// storeSchema keeps the demo's store apart from one that the database may hold already.
	storeSchema = "demo_millrace"
	createLimit = 30 * time.Second
	closeLimit  = 30 * time.Second
)

// database is where a run works, and what of it goes away again.
type database struct {
	server  *pgtest.Server // nil where it is somebody else's
	pool    *pgxpool.Pool
	store   *pgstore.Store
	claimed bool // the schemas are this run's
	keep    bool
	name    string // for people
}

// openDatabase starts a private server, or connects to the given one, and creates what the run needs there. After an
// error nothing is left of it.
func openDatabase(ctx, hurry context.Context, o options, log *zap.Logger) (_ *database, err error) {
	d := &database{keep: o.keep}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(hurry))
		}
	}()
	dsn := o.databaseURL
	if dsn == "" {
		if d.server, err = pgtest.Start(ctx, program.PrivateServer(o.writers)); err != nil {
			return nil, err
		}
		dsn = d.server.DSN("postgres")
	}
	if err = d.connect(ctx, dsn, o.writers, log); err != nil {
		return nil, err
	}
	return d, d.create(ctx)
}

func (d *database) connect(ctx context.Context, dsn string, writers int, log *zap.Logger) (err error) {
	if d.pool, err = program.Connect(ctx, dsn, writers); err != nil {
		return err
	}
	if d.store, err = pgstore.OpenPool(ctx, d.pool, pgstore.Options{Schema: storeSchema, Logger: log}); err != nil {
		return err
	}
	d.name, err = d.describe(ctx)
	return err
}

// create makes all tables. It is not interrupted half-way, so that it is known what there is to remove.
func (d *database) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	defer cancel()
	if err := d.claim(ctx); err != nil {
		return fmt.Errorf("create the demo's tables: %w", err)
	}
	d.claimed = true
	return d.store.Migrate(ctx)
}

// schemas are all that a run creates, in the order in which they are dropped.
func (d *database) schemas() []string {
	return []string{readSchema, d.store.EventsSchema(), storeSchema}
}

// claim makes the tables of the read models, and the schema for the store, all or none.
func (d *database) claim(ctx context.Context) error {
	return program.Claim(ctx, d.pool, d.schemas(), func(tx pgx.Tx) error {
		for _, schema := range []string{readSchema, storeSchema} {
			sql := "create schema " + schema + "; comment on schema " + schema + " is '" + mark + "'"
			if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		for _, m := range readModels {
			if _, err := tx.Exec(ctx, m.table, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *database) describe(ctx context.Context) (string, error) {
	var version string
	if err := d.pool.QueryRow(ctx, "select current_setting('server_version')").Scan(&version); err != nil {
		return "", fmt.Errorf("ask for the server's version: %w", err)
	}
	version, _, _ = strings.Cut(version, " ")
	if d.server != nil {
		return "a private PostgreSQL " + version + ", where commits wait for the disk; it is removed at the end", nil
	}
	config := d.pool.Config().ConnConfig
	return fmt.Sprintf("PostgreSQL %s, database %s on %s", version, config.Database, config.Host), nil
}

// close removes what the run created, ends the connections and the private server. It gives up when hurry is done, but
// does not leave a private server behind.
func (d *database) close(hurry context.Context) error {
	ctx, cancel := context.WithTimeout(hurry, closeLimit)
	defer cancel()
	var errs []error
	if d.claimed && !d.keep && d.server == nil {
		errs = append(errs, program.Remove(ctx, d.pool, d.schemas()))
	}
	if d.store != nil {
		d.store.Close()
	}
	if d.server != nil {
		errs = append(errs, d.server.Stop(ctx)) // first, since it also ends connections that are not given back
	}
	if d.pool != nil {
		d.closePool(ctx)
	}
	if err := errors.Join(errs...); err != nil {
		return leftBehindError{err}
	}
	return nil
}

// closePool does not wait for connections that are not given back.
func (d *database) closePool(ctx context.Context) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		d.pool.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}
