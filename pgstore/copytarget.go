package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

// copyTarget implements transfer.Target.
type copyTarget struct {
	*Store
	readModels TenantStep
	rebuilt    []string
}

// CopyTarget is called by package storecopy. readModels, unless it is nil, runs for each tenant in the transaction that
// opens it. rebuilt are the projections that begin at the first event.
func (s *Store) CopyTarget(readModels TenantStep, rebuilt []string) transfer.Target {
	return copyTarget{s, readModels, rebuilt}
}

func (t copyTarget) Name() string {
	config := t.pool.Config().ConnConfig
	return fmt.Sprintf("PostgreSQL %s:%d, database %q, schema %q", config.Host, config.Port, config.Database, t.opts.Schema)
}

func (t copyTarget) State(ctx context.Context, c transfer.Copy) (transfer.State, error) {
	_, state, err := t.copyState(ctx, c)
	return state, err
}

// copyState returns what the copy added to ids, and the state of the copy.
func (t copyTarget) copyState(ctx context.Context, c transfer.Copy) (added transfer.IDs, state transfer.State, err error) {
	var verified, opened, ended bool
	err = t.pool.QueryRow(ctx, t.control.sql("copy_state"), pgx.QueryExecModeExec, c.ID).
		Scan(&added.Projection, &added.DeadLetter, &added.Command, &verified, &opened, &ended)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return added, transfer.Unknown, nil
	case err != nil:
		return added, transfer.Unknown, t.missing(err)
	case ended:
		return added, transfer.Ended, nil
	case opened:
		return added, transfer.Opening, nil
	case verified:
		return added, transfer.Verified, nil
	}
	return added, transfer.Copying, nil
}

// Begin implements transfer.Target. It checks the tenants before the source is closed. Take checks them again, under
// locks.
func (t copyTarget) Begin(ctx context.Context, c transfer.Copy, tenants []transfer.Tenant) error {
	for _, tenant := range tenants {
		if err := t.mayTake(ctx, tenant.Name); err != nil {
			return fmt.Errorf("tenant %q: %w", tenant.Name, err)
		}
	}
	return t.exec(ctx, "begin_copy", c.ID, c.From)
}

// mayTake returns an error if the tenant exists and is not empty.
func (t copyTarget) mayTake(ctx context.Context, name string) error {
	tenant, err := t.ForTenant(name)
	if err != nil {
		return err
	}
	id, source, err := t.copyOf(ctx, t.pool, name)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return t.missing(err)
	case id != "":
		return fmt.Errorf("%w: %s", transfer.ErrOtherSource, source)
	}
	return tenant.absent(ctx, t.empty(ctx, t.pool, tenant))
}

// copyOf returns the copy of a tenant, and its source, or empty texts.
func (t copyTarget) copyOf(ctx context.Context, q querier, name string) (id, source string, err error) {
	err = q.QueryRow(ctx, t.control.sql("tenant_copy"), pgx.QueryExecModeExec, name).Scan(&id, &source)
	return id, source, err
}

// empty returns transfer.ErrNotEmpty if a tenant has events or projections.
func (t copyTarget) empty(ctx context.Context, q querier, tenant *Tenant) error {
	var contents []string
	err := q.QueryRow(ctx, tenant.sql("tenant_contents"), pgx.QueryExecModeExec, tenant.name).Scan(&contents)
	if err == nil && len(contents) > 0 {
		err = fmt.Errorf("%w: it has %s", transfer.ErrNotEmpty, strings.Join(contents, ", "))
	}
	return err
}

func (t copyTarget) Verify(ctx context.Context, c transfer.Copy) error {
	return t.exec(ctx, "verify_copy", c.ID)
}

func (t copyTarget) End(ctx context.Context, c transfer.Copy) error {
	return t.exec(ctx, "end_copy", c.ID)
}

// exec executes one statement, and commits it synchronously.
func (t copyTarget) exec(ctx context.Context, statement string, args ...any) error {
	err := t.port().Tx(ctx, func(tx store.Tx) error {
		tx.Exec(statement, args...)
		return nil
	})
	return failed(err, "record a copy")
}

func (t copyTarget) Reserve(ctx context.Context, c transfer.Copy, last transfer.IDs) error {
	return t.durable(ctx, "reserve ids", func(tx pgx.Tx) error {
		if err := execScript(ctx, tx, t.control.sql("lock_id_tables")); err != nil {
			return err
		}
		var projections, deadLetters, commands string
		err := tx.QueryRow(ctx, t.control.sql("id_sequences"), pgx.QueryExecModeExec, t.control.quoted).Scan(&projections, &deadLetters, &commands)
		if err != nil {
			return err
		}
		reserve := sqltext.Fill(t.control.sql("reserve_copy_ids"), "{projections}", projections, "{dead_letters}", deadLetters, "{commands}", commands)
		_, err = tx.Exec(ctx, reserve, pgx.QueryExecModeExec, c.ID, last.Projection, last.DeadLetter, last.Command, projections, deadLetters, commands)
		return err
	})
}

// Take implements transfer.Target. No other session sees a tenant that it creates in another state.
func (t copyTarget) Take(ctx context.Context, c transfer.Copy, name string) error {
	tenant, err := t.ForTenant(name)
	if err != nil {
		return err
	}
	err = t.changeTenant(ctx, name, lockWait, func(ctx context.Context, tx pgx.Tx, tenant lockedTenant) error {
		return t.takeEmpty(ctx, tx, tenant, c)
	})
	if errors.Is(err, projection.ErrUnknownTenant) {
		err = t.locked(ctx, func(tx pgx.Tx) error {
			if err := t.insertTenant(ctx, tx, tenant); err != nil {
				return err
			}
			if err := t.completeTenant(ctx, tx, name, tenant.schema, 0, ownMigrations); err != nil {
				return err
			}
			return t.take(ctx, tx, tenant, c)
		})
	}
	return t.lacking(ctx, tenant.schema, err)
}

// takeEmpty takes a tenant that exists.
func (t copyTarget) takeEmpty(ctx context.Context, tx pgx.Tx, tenant lockedTenant, c transfer.Copy) error {
	id, source, err := t.copyOf(ctx, tx, tenant.name)
	switch {
	case err != nil:
		return err
	case tenant.state == projection.TenantDropping:
		return projection.ErrTenantDropping
	case id == c.ID:
		return nil
	case id != "":
		return fmt.Errorf("%w: %s", transfer.ErrOtherSource, source)
	}
	// From now on no append is in progress.
	if err := t.take(ctx, tx, tenant.Tenant, c); err != nil {
		return err
	}
	return t.empty(ctx, tx, tenant.Tenant)
}

// take gives a tenant to a copy.
func (t copyTarget) take(ctx context.Context, tx pgx.Tx, tenant *Tenant, c transfer.Copy) error {
	if err := t.closeEvents(ctx, tx, tenant.schema, pgerr.TenantCopying, c.ID); err != nil {
		return err
	}
	return t.onPlainly(ctx, tx).run(func(tx store.Tx) error {
		control.SetState(tx, tenant.name, projection.TenantCopying)
		tx.Exec("set_tenant_copy", tenant.name, c.ID)
		return nil
	})
}

func (t copyTarget) After(ctx context.Context, table transfer.Table, tenant string) (transfer.Row, int64, error) {
	var key string
	var rows int64
	err := t.pool.QueryRow(ctx, t.control.sql("copied_part"), pgx.QueryExecModeExec, tenant, table.Name).Scan(&key, &rows)
	if errors.Is(err, pgx.ErrNoRows) {
		return table.After(), 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	after, err := table.ParseKey(key)
	return after, rows, err
}

func (t copyTarget) Write(ctx context.Context, c transfer.Copy, table transfer.Table, name string, rows []transfer.Row) error {
	tenant, err := t.ForTenant(name)
	if err != nil {
		return err
	}
	added, _, err := t.copyState(ctx, c)
	if err != nil {
		return err
	}
	key, err := json.Marshal(table.Key(rows[len(rows)-1]))
	if err != nil {
		return err
	}
	return t.inTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if err := t.beginWrite(ctx, tx, c, name); err != nil {
			return err
		}
		if err := t.insert(ctx, tx, table, tenant, added, rows); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, t.control.sql("set_copied_part"), pgx.QueryExecModeExec, name, table.Name, string(key), len(rows))
		return err
	})
}

// beginWrite prepares a transaction in which a copy writes. It returns an error unless that copy is copying the tenant.
func (t copyTarget) beginWrite(ctx context.Context, tx pgx.Tx, c transfer.Copy, tenant string) error {
	begin := sqltext.Fill(queries.Text("begin_copy_write"), "{copy}", sqltext.String(c.ID)) + "; " + t.server.unbounded
	if err := execScript(ctx, tx, begin); err != nil {
		return err
	}
	var copying bool
	err := tx.QueryRow(ctx, t.control.sql("check_copy"), pgx.QueryExecModeExec, tenant, c.ID).Scan(&copying)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errors.New("the tenant is no longer being copied")
	}
	return err
}

func (t copyTarget) insert(ctx context.Context, tx pgx.Tx, table transfer.Table, tenant *Tenant, added transfer.IDs, rows []transfer.Row) error {
	if table.Name == transfer.Events.Name {
		return insertEvents(ctx, tx, tenant, rows)
	}
	args := []any{pgx.QueryExecModeExec}
	if table.OfTenant() {
		args = append(args, tenant.name)
	}
	for i, column := range table.Columns {
		if column.Kind == transfer.Integer {
			args = append(args, columnOf[int64](rows, i))
		} else {
			args = append(args, columnOf[string](rows, i))
		}
	}
	_, err := tx.Exec(ctx, withIDs(tenant.sql(table.Statement("copy")), added), args...)
	return err
}

// columnOf returns the values of column i, as an array for the server.
func columnOf[T any](rows []transfer.Row, i int) []*T {
	values := make([]*T, len(rows))
	for n, row := range rows {
		if value, ok := row[i].(T); ok {
			values[n] = &value
		}
	}
	return values
}

// withIDs inserts into a statement what a copy adds to ids.
func withIDs(sql string, added transfer.IDs) string {
	return sqltext.Fill(sql, "{projection_ids}", strconv.FormatInt(added.Projection, 10), "{dead_letter_ids}", strconv.FormatInt(added.DeadLetter, 10),
		"{command_ids}", strconv.FormatInt(added.Command, 10))
}

// eventColumns are the columns of transfer.Events, without the slot, which the server computes.
var eventColumns = []string{"global_seq", "stream_id", "stream_version", "type", "body", "headers", "causation_id", "correlation_id", "created_at"}

// mostPrinted is how many bytes the body of a copied event may have as PostgreSQL prints it. PostgreSQL prints at most 1 GB, and could
// not read a larger one again. Events of earlier builds may have more than an append allows.
const mostPrinted = 256 << 20

// insertEvents inserts events with their positions. COPY takes the values of identity columns.
func insertEvents(ctx context.Context, tx pgx.Tx, tenant *Tenant, rows []transfer.Row) error {
	for _, row := range rows {
		for column, what := range map[int]string{5: "body", 6: "headers"} {
			text, _ := row[column].(string)
			if err := valid.Printed(what, []byte(text), mostPrinted); err != nil {
				return fmt.Errorf("the event at position %v: %w", row[0], err)
			}
		}
	}
	i := -1
	_, err := tx.CopyFrom(ctx, pgx.Identifier{tenant.schema, "events"}, eventColumns, pgx.CopyFromFunc(func() ([]any, error) {
		if i++; i == len(rows) {
			return nil, nil
		}
		created, ok := rows[i][9].(int64)
		if !ok {
			return nil, fmt.Errorf("the event at position %v has no time", rows[i][0])
		}
		return []any{rows[i][0], rows[i][2], rows[i][3], rows[i][4], rows[i][5], rows[i][6], rows[i][7], rows[i][8], time.UnixMicro(created)}, nil
	}))
	return atEvent(err, rows)
}

// atEvent adds to the error of a COPY the position of the event that the server refused. The server's message has the
// number of the row after the name of the table, which has no digits.
func atEvent(err error, rows []transfer.Row) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		if n, parsed := strconv.Atoi(firstNumber.FindString(refused.Where)); parsed == nil && 1 <= n && n <= len(rows) {
			return fmt.Errorf("the event at position %v: %w", rows[n-1][0], err)
		}
	}
	return err
}

var firstNumber = regexp.MustCompile(`[0-9]+`)

// copyReader reads the rows that the target has from a copy.
type copyReader struct {
	*Store
	added transfer.IDs
}

func (t copyTarget) Reader(ctx context.Context, c transfer.Copy) (transfer.Reader, error) {
	added, _, err := t.copyState(ctx, c)
	return copyReader{t.Store, added}, err
}

// Page implements transfer.Reader.
func (r copyReader) Page(ctx context.Context, table transfer.Table, name string, after transfer.Row) ([]transfer.Row, error) {
	tenant, err := r.ForTenant(name)
	if err != nil {
		return nil, err
	}
	args := []any{pgx.QueryExecModeExec}
	if table.InControl() {
		args = append(args, name)
	}
	args = append(append(args, after...), transfer.PageRows)
	rows, err := r.pool.Query(ctx, withIDs(tenant.sql(table.Statement("copied")), r.added), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var page transfer.Page
	for !page.Full() && rows.Next() {
		row, err := rows.Values()
		if err != nil {
			return nil, err
		}
		page.Add(row)
	}
	if len(page.Rows) > 0 {
		return page.Rows, nil // if the read failed, the next page begins at the row that cannot be read
	}
	return nil, rows.Err()
}
