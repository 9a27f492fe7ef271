package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/sqlitestore"
)

// fileTables are the tables that the demo creates in a file, sorted.
const fileTables = "events_by_role, events_by_type, payments, streams"

// filePlace is a file.
type filePlace struct {
	path string
	// temporary means that the file's folder is removed at the end.
	temporary bool
}

// fileDatabase is a store in a file of the demo's own.
type fileDatabase struct {
	*sqlitestore.Store
	place   filePlace
	created bool // by this database
}

func (p filePlace) create(ctx context.Context, _ int, log *zap.Logger) (database, error) {
	// Creating the file claims the path, so that one of two concurrent runs fails.
	file, err := os.OpenFile(p.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("there is already a file %s: choose another, or remove it with: %s", p.path, p.removal())
	}
	if err != nil {
		return nil, fmt.Errorf("create the file: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("create the file: %w", err)
	}
	d, err := p.shareFile(ctx, log)
	if err != nil {
		return nil, errors.Join(err, p.remove())
	}
	d.created = true
	return d, nil
}

func (p filePlace) share(ctx context.Context, _ int, log *zap.Logger) (database, error) {
	d, err := p.shareFile(ctx, log)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (p filePlace) shareFile(ctx context.Context, log *zap.Logger) (*fileDatabase, error) {
	store, err := sqlitestore.Open(ctx, p.path, sqlitestore.Options{Logger: slog.New(zapslog.NewHandler(log.Core()))})
	if err != nil {
		return nil, err
	}
	d := &fileDatabase{Store: store, place: p}
	if err := d.migrate(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *fileDatabase) migrate(ctx context.Context) error {
	if err := d.Store.Migrate(ctx); err != nil {
		return err
	}
	return d.InTx(ctx, d.createTables)
}

// createTables creates the tables in a store without tables and events. It fails if another program uses the store.
func (d *fileDatabase) createTables(ctx context.Context, tx *sql.Tx) error {
	var found string
	var inUse bool
	err := tx.QueryRowContext(ctx, selectTables).Scan(&found)
	if err == nil && found == "" {
		err = tx.QueryRowContext(ctx, "select exists (select 1 from millrace_events)").Scan(&inUse)
	}
	switch {
	case err != nil:
		return fmt.Errorf("list the tables: %w", err)
	case found == fileTables:
		return nil
	case found != "" || inUse:
		return d.place.foreign()
	}
	if _, err := tx.ExecContext(ctx, d.dialect().createTables()); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	return nil
}

// selectTables lists the tables of a file that are not the store's.
const selectTables = `
	select coalesce(group_concat(name, ', '), '')
	  from (select name from sqlite_schema
	         where type = 'table' and name not like 'millrace\_%' escape '\' and name not like 'sqlite\_%' escape '\'
	         order by name)`

func (p filePlace) foreign() error {
	return fmt.Errorf("another program created the file %s: use another file", p.path)
}

func (p filePlace) open(ctx context.Context) (database, error) {
	d, err := p.openFile(ctx)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// openFile opens a file of the demo. It creates nothing.
func (p filePlace) openFile(ctx context.Context) (*fileDatabase, error) {
	if info, err := os.Stat(p.path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil, errNotThere
	}
	store, err := sqlitestore.Open(ctx, p.path, sqlitestore.Options{})
	if err != nil {
		return nil, err
	}
	d := &fileDatabase{Store: store, place: p}
	var found string
	err = d.query(ctx, selectTables, nil, []any{&found}, func() {})
	switch {
	case err != nil:
		err = fmt.Errorf("list the tables: %w", err)
	case found == "":
		err = errNotThere
	case found != fileTables:
		err = p.foreign()
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (p filePlace) clean(ctx context.Context) (removed string, err error) {
	d, err := p.openFile(ctx)
	if errors.Is(err, errNotThere) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	err = mustBeUnused(ctx, d)
	d.Close()
	if err != nil {
		return "", err
	}
	return "the file " + p.path, p.remove()
}

// files are the file and those that SQLite and the store keep beside it.
func (p filePlace) files() []string {
	return []string{p.path, p.path + "-wal", p.path + "-shm", p.path + "-owner", p.path + "-queue", p.path + "-resync"}
}

func (p filePlace) removal() string { return "demo clean -file " + p.path }

// remove removes the files. A closed store has only some of them.
func (p filePlace) remove() error {
	var failed []error
	for _, name := range slices.Backward(p.files()) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("remove the file: %w", errors.Join(failed...))
	}
	return nil
}

func (p filePlace) other() string {
	return "-postgres runs it on a private PostgreSQL server, -database-url on another one"
}

func (d *fileDatabase) kind() string { return "sqlite" }

func (d *fileDatabase) batch(handle batchHandler) millrace.Handler {
	return sqlitestore.Batch(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		run := func(ctx context.Context, sql string, args ...any) error {
			_, err := tx.ExecContext(ctx, sql, args...)
			return err
		}
		return handle(ctx, transaction{d.dialect(), run}, events)
	})
}

func (d *fileDatabase) dialect() *dialect { return inSQLite }

func (d *fileDatabase) query(ctx context.Context, sql string, args, scan []any, fn func()) (err error) {
	rows, err := d.DB().QueryContext(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := rows.Scan(scan...); err != nil {
			return err
		}
		fn()
	}
	return rows.Err()
}

func (d *fileDatabase) describe(ctx context.Context) (string, error) {
	var version string
	if err := d.query(ctx, "select sqlite_version()", nil, []any{&version}, func() {}); err != nil {
		return "", fmt.Errorf("read the version of SQLite: %w", err)
	}
	if d.place.temporary {
		return "SQLite " + version + " in a temporary file, with durable commits; it is removed at the end", nil
	}
	return fmt.Sprintf("SQLite %s, file %s", version, d.place.path), nil
}

func (d *fileDatabase) removal() string { return d.place.removal() }

func (d *fileDatabase) drop(ctx context.Context) error {
	if !d.created {
		return nil
	}
	d.Close()
	return program.Cleanup(ctx, func(context.Context) error { return d.place.remove() })
}
