package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/tenancy"
)

// rows checks that the role sees all rows of the store.
func (e *examination) rows(ctx context.Context) error {
	hidden, err := e.texts(ctx, "look for row-level security", "hidden_rows", e.opts.Schema, storeTables)
	if err == nil && len(hidden) > 0 {
		e.add("permissions", hiddenAdvice, "row-level security hides rows of %s from the role %q", someOf(hidden),
			e.config.ConnConfig.User)
		return errNothingElse
	}
	return err
}

// schemas checks the control schema, the schemas of the tenants, and what goes on in them.
func (e *examination) schemas(ctx context.Context) error {
	var version int
	err := e.conn.QueryRow(ctx, e.control.sql("control_version")).Scan(&version)
	const migrate = "run millrace migrate up, or call Migrate, as the role that owns the schemas"
	switch {
	case pgerr.IsMissing(err):
		e.add("schema", migrate, "the control schema %q does not exist", e.opts.Schema)
		return errNothingElse
	case pgerr.Is(err, pgerr.InsufficientPrivilege):
		return e.privileges(ctx, []string{e.opts.Schema})
	case err != nil:
		return fmt.Errorf("read the version of the control schema: %w", err)
	}
	newest := len(ownMigrations.control)
	if err := migration.NotTooNew(version, newest); err != nil {
		e.add("schema", "use a newer version of this program", "control schema %q: %v", e.opts.Schema, err)
	} else if version < newest {
		e.add("schema", migrate, "the control schema %q is at version %d, this program at %d", e.opts.Schema, version,
			newest)
		return errNothingElse
	}
	if err := e.fence(ctx, migrate); err != nil {
		return err
	}
	schemas, err := e.tenants(ctx, migrate)
	if err != nil {
		if pgerr.Is(err, pgerr.InsufficientPrivilege) {
			return e.privileges(ctx, []string{e.opts.Schema})
		}
		return err
	}
	for _, check := range []func(context.Context,
		[]string) error{e.privileges, e.indexes, e.sequences, e.leases, e.transactions, e.connections} {
		// a missing privilege was found
		if err := check(ctx, schemas); err != nil && !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			return err
		}
	}
	return nil
}

// fence checks the functions that check leases. They have no version of their own.
func (e *examination) fence(ctx context.Context, migrate string) error {
	current, _, err := fenceIsCurrent(ctx, e.conn, e.opts.Schema)
	if err != nil {
		return fmt.Errorf("read the functions of the fence: %w", err)
	}
	if !current {
		e.add("schema", migrate, "functions of the control schema %q are those of an older program: after a restart of all nodes, batches are slow until the table of leases is analyzed",
			e.opts.Schema)
	}
	return nil
}

// tenants checks the versions and the states of the tenants. It returns their schemas, after the control schema.
func (e *examination) tenants(ctx context.Context, migrate string) (schemas []string, err error) {
	schemas = []string{e.opts.Schema}
	var outdated, gone []string
	states := make(map[tenancy.State][]string)
	rows, _ := e.conn.Query(ctx, e.control.sql("diagnose_tenants"))
	var name, schema string
	var version int
	var state tenancy.State
	var exists bool
	_, err = pgx.ForEachRow(rows, []any{&name, &schema, &version, &state, &exists}, func() error {
		switch {
		case !exists:
			gone = append(gone, name)
			return nil
		case version < len(ownMigrations.tenant):
			outdated = append(outdated, name)
		}
		states[state] = append(states[state], name)
		schemas = append(schemas, schema)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the tenants: %w", err)
	}
	if len(outdated) > 0 {
		e.add("schema", migrate, "tenants lack migrations: %s", someOf(outdated))
	}
	if len(gone) > 0 {
		e.add("tenants", "restore the schemas from a backup, or remove the tenants by millrace tenants drop",
			"the schemas of tenants are gone: %s", someOf(gone))
	}
	for _, state := range slices.Sorted(maps.Keys(stateProblems)) {
		if stuck := states[state]; len(stuck) > 0 {
			e.add("tenants", stateProblems[state], "tenants are in the state %q: %s", state, someOf(stuck))
		}
	}
	return schemas, nil
}

// someOf lists at most ten names.
func someOf(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// texts returns the rows of a statement with one column.
func (e *examination) texts(ctx context.Context, doing, statement string, args ...any) ([]string, error) {
	rows, _ := e.conn.Query(ctx, e.control.sql(statement), args...)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return list, nil
}

// ownTables are the tables of a tenant that belong to the store.
var ownTables = createdTables(ownMigrations.tenant)

// createdTables returns the names of the tables that migrations create, sorted. Every program that links the store
// calls it at its start, so it searches only lines that create something.
func createdTables(list []migration.Step) (names []string) {
	for _, step := range list {
		for line := range strings.Lines(step.SQL) {
			if !strings.HasPrefix(line, "create ") {
				continue
			}
			if table := createdTable.FindStringSubmatch(line); table != nil {
				names = append(names, table[1])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var createdTable = regexp.MustCompile(`^create (?:unlogged )?table \{(?:control|tenant)\}\.(\w+) `)

// privileges checks what the role may do. The role that migrates needs more, which Migrate names.
func (e *examination) privileges(ctx context.Context, schemas []string) error {
	lacking, err := e.texts(ctx, "read privileges", "diagnose_privileges", schemas, ownTables)
	if err == nil && len(lacking) > 0 {
		e.add("permissions", "grant them; docs/roles.sql has the grants for a role that runs projections",
			"the role %q lacks %s", e.config.ConnConfig.User, someOf(lacking))
	}
	return err
}

// storeTables are all tables of the store.
var storeTables = slices.Concat(createdTables(ownMigrations.control), ownTables)

// hiddenAdvice says what to do about row-level security on the store's tables.
const hiddenAdvice = "disable row-level security for these tables, or create a policy for the role that hides nothing: using (true)"

var (
	tableBody    = regexp.MustCompile(`(?ms)^create (?:unlogged )?table \{(?:control|tenant)\}\.(\w+) \((.*?)^\)`)
	keyColumn    = regexp.MustCompile(`(?m)^\s+(\w+) [^\n]*?\b(?:primary key|unique)\b`)
	keyColumns   = regexp.MustCompile(`(?m)^\s+(?:primary key|unique) \(([^)]*)\)`)
	createdIndex = regexp.MustCompile(`(?m)^create (?:unique )?index (?:\w+ )?on \{(?:control|tenant)\}\.(\w+) \(([^)]*)\)`)
	indexColumns = regexp.MustCompile(`USING btree \(([^)]*)\)`)
)

// indexesOf returns the tables that migrations create, with the columns of their indexes.
func indexesOf(list []migration.Step) map[string][]string {
	tables := make(map[string][]string)
	for _, step := range list {
		for _, table := range tableBody.FindAllStringSubmatch(step.SQL, -1) {
			name, body := table[1], table[2]
			tables[name] = nil
			for _, key := range slices.Concat(keyColumn.FindAllStringSubmatch(body, -1),
				keyColumns.FindAllStringSubmatch(body, -1)) {
				tables[name] = append(tables[name], key[1])
			}
		}
		for _, index := range createdIndex.FindAllStringSubmatch(step.SQL, -1) {
			tables[index[1]] = append(tables[index[1]], index[2])
		}
	}
	return tables
}

// indexes checks that the tables have all indexes of the migrations.
func (e *examination) indexes(ctx context.Context, schemas []string) error {
	found := make(map[string]int)
	key := func(schema, table, columns string) string { return schema + "." + table + " (" + columns + ")" }
	rows, _ := e.conn.Query(ctx, e.control.sql("diagnose_indexes"), schemas)
	var schema, table, definition string
	_, err := pgx.ForEachRow(rows, []any{&schema, &table, &definition}, func() error {
		// With quote_all_identifiers the method is quoted too.
		if m := indexColumns.FindStringSubmatch(strings.ReplaceAll(definition, `"`, "")); m != nil {
			found[key(schema, table, m[1])]++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the indexes: %w", err)
	}
	var missing []string
	for i, schema := range schemas {
		tables := indexesOf(ownMigrations.control)
		if i > 0 {
			tables = indexesOf(ownMigrations.tenant)
		}
		for _, table := range slices.Sorted(maps.Keys(tables)) {
			for _, columns := range tables[table] {
				found[key(schema, table, columns)]--
				if found[key(schema, table, columns)] < 0 {
					missing = append(missing, key(schema, table, columns))
				}
			}
		}
	}
	if len(missing) > 0 {
		e.add("indexes", "create them as in the output of millrace migrate sql, or reindex those that are invalid",
			"indexes are missing or invalid: %s", someOf(missing))
	}
	return nil
}

// sequences checks that positions are given out one by one, above those that projections have handled. A session that
// keeps numbers would give an event a lower position than events that are visible, and so would a sequence that was set
// back.
func (e *examination) sequences(ctx context.Context, schemas []string) error {
	cached, err := e.texts(ctx, "read the sequences", "diagnose_sequences", schemas)
	if err != nil {
		return err
	}
	if len(cached) > 0 {
		e.add("sequences", "run alter sequence … cache 1 now: projections skip events otherwise",
			"sequences of positions have a cache: %s", someOf(cached))
	}
	back, err := e.texts(ctx, "compare the sequences with the checkpoints", "diagnose_positions", schemas)
	if err == nil && len(back) > 0 {
		e.add("sequences",
			"stop appending: projections skip new events otherwise; if the tenant was restored, run millrace tenants recover; otherwise set them to the highest position or checkpoint, then rebuild the read models",
			"sequences of positions are below a checkpoint: %s", someOf(back))
	}
	return err
}

// Leases are bloated if their table is larger than bloatBytes, and bloatRow for each row. A row takes some 200 bytes,
// and in a table that is vacuumed in time up to a few times that.
const bloatBytes, bloatRow = 1 << 20, 1000

func (e *examination) leases(ctx context.Context, _ []string) error {
	var size, rows int64
	var off bool
	var persistence string
	err := e.conn.QueryRow(ctx, e.control.sql("diagnose_leases"), e.opts.Schema).Scan(&size, &rows, &off, &persistence)
	if err != nil {
		return fmt.Errorf("read the table of leases: %w", err)
	}
	table := e.control.quoted + ".leases"
	if off {
		e.add("leases", fmt.Sprintf("run alter table %s reset (autovacuum_enabled)", table),
			"autovacuum is turned off for the table %s, which changes with every batch", table)
	}
	if size > bloatBytes+rows*bloatRow {
		e.add("leases",
			fmt.Sprintf("end old transactions, then run vacuum full %s, which stops all projections for a moment",
				table),
			"the table %s takes %d KiB for %d rows: checkpoints are slow", table, size>>10, rows)
	}
	if persistence != "u" {
		name := e.control.quoted + ".incarnation"
		e.add("incarnation", fmt.Sprintf("run alter table %s set unlogged", name),
			"the table %s must be UNLOGGED, since it has to be empty after a crash", name)
	}
	return nil
}

// transactions looks for those that are open for too long.
func (e *examination) transactions(ctx context.Context, schemas []string) error {
	rows, _ := e.conn.Query(ctx, e.control.sql("diagnose_transactions"), e.patience.Seconds(), schemas[1:])
	var pid int
	var role, application, state string
	var age float64
	var holds bool
	_, err := pgx.ForEachRow(rows, []any{&pid, &role, &application, &state, &age, &holds}, func() error {
		effect := "it keeps dead rows from being cleaned up"
		if holds {
			effect = "it has appended events, so projections wait for it"
		}
		e.add("transactions", fmt.Sprintf("find out what its program does, or end it: select pg_terminate_backend(%d)",
			pid),
			"process %d (role %s, application %q, %s) has had a transaction open for %v: %s", pid, role, application,
			state, seconds(age).Round(time.Second), effect)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the open transactions: %w", err)
	}
	rows, _ = e.conn.Query(ctx, e.control.sql("diagnose_prepared"), e.patience.Seconds())
	var gid string
	_, err = pgx.ForEachRow(rows, []any{&gid, &role, &age}, func() error {
		e.add("prepared transactions", "ask its transaction manager, or run commit prepared or rollback prepared",
			"the prepared transaction %q of role %s has been open for %v: it keeps its locks", gid, role,
			seconds(age).Round(time.Second))
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the prepared transactions: %w", err)
	}
	return nil
}

// connections compares the pools of the nodes with what the server accepts, and the clocks.
func (e *examination) connections(ctx context.Context, _ []string) error {
	var nodes, most, open, ofDatabase, ofRole int
	if err := e.conn.QueryRow(ctx, e.control.sql("diagnose_nodes")).Scan(&nodes); err != nil {
		return fmt.Errorf("count the nodes: %w", err)
	}
	before := time.Now()
	var server int64 // microseconds, since a time as text depends on DateStyle
	if err := e.conn.QueryRow(ctx, queries.Text("diagnose_connections")).Scan(&most, &open, &ofDatabase, &ofRole,
		&server); err != nil {
		var failed *pgconn.PgError
		if errors.As(err, &failed) {
			return fmt.Errorf("read the limits of connections: %w", err)
		}
		return err
	}
	e.clock(time.UnixMicro(server), before, time.Now())
	const advice = "lower pool_max_conns, raise the limit (max_connections), or put a pooler in between"
	if open*10 > most*9 {
		e.add("connections", advice, "%d connections are open, and the server accepts %d", open, most)
	}
	of := "the server"
	for _, limit := range []struct {
		of   string
		most int
	}{{"the database", ofDatabase}, {"the role", ofRole}} {
		if limit.most >= 0 && limit.most < most {
			of, most = limit.of, limit.most
		}
	}
	// A node has its pool and a session connection. If no node runs yet, the limits must suffice for one.
	nodes = max(1, nodes)
	pool := int(e.config.MaxConns)
	if wanted := nodes * (pool + 1); wanted > most && !e.pooled {
		e.add("connections", advice,
			"pools of %d connections on %d nodes, with their session connections, need up to %d, but %s accepts %d",
			pool, nodes, wanted, of, most)
	}
	return nil
}
