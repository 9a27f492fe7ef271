package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
)

// ErrMoved is returned by all calls that write, as soon as storecopy.Run has begun to copy the store to another one.
// Nothing was written. storecopy.Reopen makes the file usable again.
var ErrMoved = errors.New("the store was moved")

// closedPrefix begins the message of the triggers that close_table.sql creates. The name of the other store follows.
const closedPrefix = "millrace: the store was moved to "

// copySource implements transfer.Source.
type copySource struct{ *Store }

// CopySource is called by package storecopy.
func (s *Store) CopySource() transfer.Source { return copySource{s} }

func (s copySource) Name() string {
	host, err := os.Hostname()
	if err != nil {
		return s.path
	}
	return host + ":" + s.path
}

// lockPatience is how long Lock waits for the owner lock. An inspection of the lock holds it for a shorter time.
const lockPatience = time.Second

func (s copySource) Lock(ctx context.Context) (release func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	lock, err := ownerlock.Acquire(ctx, s.path)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

func (s copySource) Copy(ctx context.Context) (c transfer.Copy, err error) {
	if err := s.ready(ctx); err != nil {
		return c, err
	}
	_, err = runOne(ctx, s.readers, "copy_begun", nil, &c.ID, &c.From, &c.To)
	return c, damaged(err)
}

// Closable implements transfer.Source.
func (s copySource) Closable(ctx context.Context) error { return noOperation(ctx, s.readers) }

// noOperation returns projection.ErrOperationOpen if an operation is open. A copy does not have operations.
func noOperation(ctx context.Context, q querier) error {
	open, err := control.ReadOperation((&controlTx{ctx: ctx, q: q}), "any_operation")
	switch {
	case errors.Is(err, projection.ErrOperationNotFound):
		return nil
	case err == nil:
		err = fmt.Errorf("%s: %w", open.ID, engine.AlreadyOpen(open))
	}
	return err
}

// Close implements transfer.Source. The triggers also refuse the writes of programs that do not know about copies.
func (s copySource) Close(ctx context.Context, c transfer.Copy) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := listTenants(ctx, tx); err != nil {
			return err
		}
		if err := noOperation(ctx, tx); err != nil {
			return err
		}
		if err := execute(ctx, tx, "release_dead", time.Now().UnixMicro()); err != nil {
			return err
		}
		if err := execute(ctx, tx, "begin_copy", c.ID, c.From, c.To); err != nil {
			return err
		}
		return closeTables(ctx, tx, c)
	})
}

func closeTables(ctx context.Context, tx *sql.Tx, c transfer.Copy) error {
	return forEachTable(ctx, tx, "close_table", "{message}", "'"+strings.ReplaceAll(closedPrefix+c.To, "'", "''")+"'")
}

// closeNewTables closes the tables of a migration if the file was moved before.
func closeNewTables(ctx context.Context, tx *sql.Tx) error {
	var c transfer.Copy
	moved, err := runOne(ctx, tx, "copy_begun", nil, &c.ID, &c.From, &c.To)
	if err != nil || !moved {
		return err
	}
	if err := forEachTable(ctx, tx, "open_table"); err != nil {
		return err
	}
	return closeTables(ctx, tx, c)
}

func (s copySource) Open(ctx context.Context) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		if err := forEachTable(ctx, tx, "open_table"); err != nil {
			return err
		}
		return execute(ctx, tx, "end_copy")
	})
}

// forEachTable executes a script for each table of the store. values replace placeholders in it.
func forEachTable(ctx context.Context, tx *sql.Tx, script string, values ...string) error {
	tables, err := column[string](ctx, tx, "own_tables")
	if err != nil {
		return err
	}
	for _, table := range tables {
		fill := strings.NewReplacer(append([]string{"{table}", table}, values...)...)
		if _, err := tx.ExecContext(ctx, fill.Replace(queries.Text(script))); err != nil {
			return err
		}
	}
	return nil
}

func (s copySource) Tenants(ctx context.Context) ([]transfer.Tenant, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return listTenants(ctx, s.readers)
}

func listTenants(ctx context.Context, q querier) (tenants []transfer.Tenant, err error) {
	rows, err := q.QueryContext(ctx, queries.Text("copy_tenants"))
	if err != nil {
		return nil, damaged(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var t transfer.Tenant
		if err := rows.Scan(&t.Name, &t.Head, &t.State, &t.Paused); err != nil {
			return nil, err
		}
		if t.State != projection.TenantActive && t.State != projection.TenantArchived {
			return nil, fmt.Errorf("tenant %q is in the state %q, and must be active or archived", t.Name, t.State)
		}
		tenants = append(tenants, t)
	}
	return tenants, damaged(rows.Err())
}

func (s copySource) IDs(ctx context.Context) (ids transfer.IDs, err error) {
	err = s.readers.QueryRowContext(ctx, queries.Text("copy_ids")).Scan(&ids.Projection, &ids.DeadLetter, &ids.Command)
	return ids, damaged(err)
}

// Page implements transfer.Reader.
func (s copySource) Page(ctx context.Context, table transfer.Table, tenant string, after transfer.Row) ([]transfer.Row, error) {
	args := append(append([]any{tenant}, after...), transfer.PageRows)
	rows, err := s.readers.QueryContext(ctx, queries.Text(table.Statement("copy")), args...)
	if err != nil {
		return nil, damaged(err)
	}
	defer func() { _ = rows.Close() }()
	var page transfer.Page
	for !page.Full() && rows.Next() {
		row, into, isEvent := make(transfer.Row, len(table.Columns)), make([]any, len(table.Columns)), table.Name == transfer.Events.Name
		for i := range row {
			into[i] = &row[i]
		}
		var id, sum int64
		if isEvent {
			into = append(into, &id, &sum)
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		if isEvent && copiedSum(id, row) != sum {
			return nil, s.damaged(changedEvent(id))
		}
		page.Add(row)
	}
	return page.Rows, damaged(rows.Err())
}

// copiedSum returns the checksum of an event of copy_events.sql.
func copiedSum(id int64, row transfer.Row) int64 {
	text := func(i int) string { v, _ := row[i].(string); return v }
	number := func(i int) int64 { v, _ := row[i].(int64); return v }
	_, sum := checksum(nil, id, number(3), number(9), text(2), text(4), text(5), text(6), text(7), text(8))
	return sum
}

// notMoved returns ErrMoved if the file was moved.
func (s *Store) notMoved(ctx context.Context) error {
	c, err := copySource{s}.Copy(ctx)
	if err == nil && c.ID != "" {
		err = fmt.Errorf("%w to %s", ErrMoved, c.To)
	}
	return err
}

// moved adds ErrMoved to an error by which a trigger of close_table.sql reports a write. Other errors are returned
// unchanged.
func moved(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) && failed.Code() == sqlite3.SQLITE_CONSTRAINT_TRIGGER {
		if _, to, ok := strings.Cut(failed.Error(), closedPrefix); ok && !errors.Is(err, ErrMoved) {
			return fmt.Errorf("%w to %s", ErrMoved, strings.TrimSuffix(to, fmt.Sprintf(" (%d)", failed.Code())))
		}
	}
	return err
}
