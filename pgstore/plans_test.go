package pgstore

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// make plans raises both.
var (
	planLeases = flag.Int("plan-leases", 20_000, "how many leases the tests of plans have")
	planEvents = flag.Int("plan-events", 100_000, "how many events the tests of plans have")
)

// planned is a hot statement. changes is how many rows it changes or returns.
type planned struct {
	name, sql string
	args      []any
	changes   int64
}

var (
	controlTables = []string{
		"leases", "projections", "dead_letters", "parked_streams", "commands", "retired_projections", "operations",
		"aliases",
	}
	tenantTables = []string{"streams", "events", "append_keys", "append_results"}
)

// coldStatements are the files of the statements that are not hot, by the reason why.
var coldStatements = map[string][]string{
	"it is a part of others": {"append_durable", "lease_columns"},
	"it runs once for a command or an operation, and reads one row by its primary key, or the few rows of one projection": {"check_lease", "lock_lease", "check_operation", "count_failed_replay", "count_replay",
		"allow_out_of_order", "count_refused", "insert_refused", "leave_refused", "refused_row",
		"count_unparked", "delete_old_commands", "delete_old_operations", "end_discard", "end_replay",
		"first_of_stream", "has_open_command", "letter_projections", "open_discards",
		"release_streams", "set_replaying", "state_of_tenant", "try_stream", "unblock_streams"},
	"it reads no table of the store": {"notify", "transaction_began", "begin_batch", "chain_batch", "commit_batch",
		"commits",
		"flush_batches", "settings_batch", "begin_durable", "begin_in_tx", "begin_migration", "begin_probe",
		"check_client_watch", "disable_jit", "skip_in_order",
		"notify_wake", "ping", "plan_for_arguments", "reset_session", "server_facts", "session_lock", "waits_for_lock"},
	"it runs when an operator asks for a diagnosis, and reads the catalog or a row for each tenant, node or session": {"diagnose_connections", "diagnose_indexes",
		"diagnose_leases", "diagnose_listen", "diagnose_nodes", "diagnose_notify", "diagnose_positions",
		"diagnose_prepared", "diagnose_privileges",
		"diagnose_sequences", "diagnose_tenants", "diagnose_transactions"},
	"it runs in an erasure, for the events of one stream, the tenant's projections, keys and aliases, and the few erasures": {"create_erasures",
		"delete_erasure", "end_erasure", "end_erasure_pauses", "erase_aliases", "erase_keys", "erasures",
		"insert_erasure",
		"lock_stream", "projection_names", "complete_erasures", "redact_dead_letters", "redact_events",
		"redact_failures", "selected_events",
		"set_erasure_pauses", "tenant_paused", "unapplied_events"},
	"it runs once in a swap, for the events between the checkpoints of two versions": {"has_events"},
	"it runs when a version is swapped in or dropped, or a projection forgotten, for the rows of one projection": {"delete_commands_of", "delete_dead_letters_of",
		"delete_parked_streams_of", "restore_name", "retire_name"},
	"it reads a table of one row": {
		"begin_read", "check_incarnation", "database_identity", "incarnation", "make_incarnation", "probe_space",
		"probe_write",
	},
	"it reads the catalog, locks or sessions of the server": {"end_previous_session", "end_zombie_batches",
		"lock_holders", "deadlock_rivals", "locked_events", "oldest_snapshot",
		"extensions_outside", "foreign_objects", "hidden_rows", "incarnation_persistence", "missing_privilege",
		"schema_exists"},
	"it runs when a program migrates or creates tenants, and reads or writes a row for each tenant or version": {"complete_tenants", "control_version",
		"create_schema", "fence_functions", "fence_is_current",
		"insert_tenant", "insert_tenants", "migration_lock", "migration_lock_shared",
		"other_tenants_exist", "outdated_tenants",
		"record_version", "require_control_version", "require_tenant_version", "schema_versions"},
	"it runs when the number of partitions changes, for the rows of one projection: TestResplitReadsOnlyItsProjection": {"continue_replay", "count_parked", "dead_letter_streams", "end_living_replays",
		"delete_partition_leases", "delete_partitions", "event_slots", "insert_lease", "insert_partition",
		"mark_dead_letters_tried", "mark_stream_tried",
		"mark_streams_tried", "parked_streams_of_partitions", "move_commands", "move_dead_letters",
		"move_parked_streams", "open_replays", "release_partition_numbers"},
	"it runs when projections are renamed or forgotten, for the names of their tenants: TestRenameReadsOnlyItsTenants": {"names_of_tenants", "lock_projections",
		"rename_projection", "end_living_attempts", "fence_renamed"},
	"it runs when a projection is created that does not begin at the first event": {
		"check_incarnation", "end_without_gap", "first_since",
	},
	"it runs when a user resets a projection, and reads the parked dead letters of its rows": {
		"count_parked_above", "resolve_above", "release_all_streams",
	},
	"it runs when a restored tenant is recovered, for the rows of its projections": {
		"delete_dead_letters_above", "lower_leases", "lower_projections", "restored_partitions", "tenant_tables",
	},
	"it reads all tenants or nodes, and returns them": {
		"list_peers", "members", "nodes", "tenants",
	},
	"TestStatementsOfStatusReadWhatTheySelect shows what it reads": {
		"lags", "overview", "projections", "settled_floors",
	},
	"it runs when a tenant is archived, brought back or dropped": {"close_tenant", "delete_tenant", "drop_schema",
		"limit_lock_wait", "lock_tables",
		"lockable_tables", "open_tenant", "table_exists", "tenant_dependents", "tenant_lock_holders"},
	"it runs when a tenant moves, once for each tenant or page, and reads all rows of the tenant: TestMoveReadsOnlyItsTenant": {"allow_idle", "continue_positions",
		"copy_aliases", "copy_commands", "copy_dead_letters", "copy_erasures", "copy_events", "copy_keys",
		"copy_parked_streams", "copy_projections",
		"copy_retired_projections", "copy_streams", "ids_of_tenant", "last_position", "lock_ids", "lower_moved_leases",
		"lower_moved_projections", "operation_of_tenant", "paste_aliases",
		"paste_commands", "paste_dead_letters", "paste_erasures", "paste_events", "paste_keys", "paste_leases",
		"paste_parked_streams", "paste_projections",
		"paste_retired_projections", "paste_streams", "reserve_ids", "tenant_contents"},
	"it runs once before the first erasure, move or snapshot, or reads the catalog": {"create_moves", "complete_moves",
		"create_snapshots", "lock_new_table",
		"table_was_made"},
	"it reads or writes the snapshots of streams by their primary key, and events as read_stream does": {
		"erase_snapshots", "read_from_snapshot", "save_snapshot",
	},
	"it runs when a tenant moves, and reads or writes its row in moves by the primary key, or the row of the first version": {"delete_move",
		"end_move", "insert_arrival", "insert_move", "move_of", "repeat_move", "store_name"},
	"it reads the leases of a node, a large part of all, and runs when nodes come and go, and every 16th search": {
		"desired_counts", "owned_leases",
	},
}

// lettersOfOne is how many dead letters one projection has.
const lettersOfOne = 10_001

// mayRead returns how many rows a statement may read beside those that it returns.
func mayRead(statement, statistics string) int64 {
	switch statement {
	case "count_dead_letters": // it counts them
		return lettersOfOne
	case "dead_letters": // it sorts them, until the table is analyzed for the first time
		if statistics == "none" {
			return lettersOfOne
		}
	case "claim of nothing": // the 100 leases are read twice: for their owners, and to claim them
		return 220
	case "suspend_projections": // the 100 projections of a tenant, and their leases
		return 400
	case "orders_of_node": // all leases of a node: each, and its projection
		return 2*int64(*planLeases)/fleetNodes + 1
	}
	return 0
}

// TestHotStatementsReadOnlyWhatTheyNeed runs each hot statement with many leases and events, and checks what the server
// read. That includes the statements within functions, which a plan does not show. A statement must not read a table
// from end to end, nor many more rows than it returns: a sort of the rest of a table would.
func TestHotStatementsReadOnlyWhatTheyNeed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	statements := append(hotControlStatements(t, f), hotTenantStatements(t, f.Store)...)
	everyFileIsHotOrCold(t, f.Store, statements)
	tables := append(inSchema("millrace", append([]string{"nodes"}, controlTables...)),
		inSchema("millrace_default", tenantTables)...)
	for _, statistics := range []string{"none", "of rest", "of now"} {
		switch statistics {
		case "of rest": // as after a restart of all nodes of a store without dead letters and commands
			// Aliases and retired names are rarely deleted.
			for _, table := range []string{
				"dead_letters", "parked_streams", "commands", "operations", "aliases", "retired_projections",
			} {
				mustExec(t, f.Store, fmt.Sprintf("create table kept_%s as table millrace.%[1]s", table))
				keeps := table != "aliases" && table != "retired_projections"
				deleteAndAnalyze(t, f.Store, "millrace."+table, keeps)
				mustExec(t, f.Store, fmt.Sprintf("insert into millrace.%s overriding system value table kept_%[1]s", table))
			}
			mustExec(t, f.Store, "create table owners as select id, owner from millrace.leases")
			mustExec(t, f.Store, "update millrace.leases set owner = null")
			mustExec(t, f.Store, "vacuum analyze millrace.leases")
			mustExec(t, f.Store, "update millrace.leases l set owner = o.owner from owners o where o.id = l.id")
			mustExec(t, f.Store, "vacuum millrace.leases")
		case "of now":
			for _, table := range tables {
				mustExec(t, f.Store, "vacuum analyze "+table)
			}
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			settings := fmt.Sprintf("select set_config('plan_cache_mode', '%s', true), set_config('millrace.batch', '1', true)", mode)
			for _, s := range statements {
				var took time.Duration
				read := readBy(t, f.Store, settings, func(tx pgx.Tx) error {
					began := time.Now()
					tag, err := tx.Exec(testContext(t), s.sql, s.args...)
					took = time.Since(began)
					if err == nil && tag.RowsAffected() != s.changes {
						t.Errorf("%s: %d rows, want %d", s.name, tag.RowsAffected(), s.changes)
					}
					return err
				})
				rows, most := int64(0), max(200+10*s.changes, mayRead(s.name, statistics))
				for _, table := range append(slices.Clone(controlTables), tenantTables...) {
					rows += read[table].Rows
					if read[table].Scans != 0 {
						t.Errorf("%s, statistics %s, %s: %s is read from end to end:\n%s", s.name, statistics, mode, table,
							explain(t, f.Store, s.sql, s.args...))
					}
				}
				if rows > most {
					t.Errorf("%s, statistics %s, %s: %d rows are read for %d, want at most %d:\n%s", s.name, statistics,
						mode, rows, s.changes, most, explain(t, f.Store, s.sql, s.args...))
				}
				t.Logf("%-35s %-8s %-18s %6d rows read, %v", s.name, statistics, mode, rows, took)
			}
		}
	}
	// The controls: a scan would be seen, of either schema.
	for table, rows := range map[string]int{"millrace.leases": *planLeases, "millrace_default.events": *planEvents} {
		read := readBy(t, f.Store, "select", func(tx pgx.Tx) error {
			_, err := tx.Exec(testContext(t), "set local max_parallel_workers_per_gather = 0; select count(*) from "+
				table+" x where x::text = ''")
			return err
		})[table[strings.Index(table, ".")+1:]]
		if read.Scans != 1 || read.Rows != int64(rows) {
			t.Errorf("the control of %s reads %+v", table, read)
		}
	}
}

// deleteAndAnalyze deletes the rows of a table. If it keeps its pages, the planner then expects one row, however many
// follow.
func deleteAndAnalyze(t *testing.T, store *Store, table string, keepsPages bool) {
	t.Helper()
	mustExec(t, store, "delete from "+table)
	mustExec(t, store, fmt.Sprintf("vacuum (analyze, truncate %v) %s", !keepsPages, table))
}

// refill fills tables that were filled, emptied and then analyzed. They are not analyzed again.
func refill(t *testing.T, store *Store, fill func(), tables ...string) {
	t.Helper()
	for _, table := range tables {
		mustExec(t, store, "alter table "+table+" set (autovacuum_enabled = off)")
	}
	fill()
	for _, table := range tables {
		deleteAndAnalyze(t, store, table, true)
	}
	fill()
}

func inSchema(schema string, tables []string) (names []string) {
	for _, table := range tables {
		names = append(names, schema+"."+table)
	}
	return names
}

// everyFileIsHotOrCold checks that each file of statements is that of a hot statement, or has a reason to be cold.
func everyFileIsHotOrCold(t *testing.T, store *Store, statements []planned) {
	t.Helper()
	files := make(map[string]string)
	for reason, names := range coldStatements {
		for _, name := range names {
			files[name] = reason
		}
	}
	for _, s := range statements {
		for _, file := range filesOf(store, s.sql) {
			if reason := files[file]; reason != "" && reason != "hot" {
				t.Errorf("%s.sql is hot, and cold because %s", file, reason)
			}
			files[file] = "hot"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, exists := queries[name]; !exists {
			t.Errorf("there is no %s.sql", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(queries)) {
		if files[name] == "" {
			t.Errorf("%s.sql is in no list: add it to the hot statements (hotControlStatements, hotTenantStatements), or to coldStatements with the reason", name)
		}
	}
}

// filesOf returns the files of a statement.
func filesOf(store *Store, sql string) (files []string) {
	c := &store.control
	heads, err := store.events.headsStatement([]string{store.tenant.name})
	if err == nil && strings.HasSuffix(sql, heads) {
		files = append(files, "heads")
		sql = strings.TrimSuffix(strings.TrimSuffix(sql, heads), " union all ")
	}
	if strings.Contains(sql, "with ordinality as p (position, place)") {
		return append(files, "next_event_ages", "next_events")
	}
	for name := range c.statements {
		if sql != c.inTenant(name, store.tenant.quoted) {
			continue
		}
		// An append is named by its stream's file, its events' file, and its kind.
		parts := strings.Fields(name)
		if parts[len(parts)-1] == "own" {
			files, parts = append(files, "append_own"), parts[:len(parts)-1]
		}
		switch kind := strings.Join(parts[min(2, len(parts)):], ""); {
		case kind == "expiring":
			files = append(files, parts[0], parts[1], "append_keyed", "expire_keys")
		case kind == "keyed":
			files = append(files, parts[0], parts[1], "append_keyed")
		case len(parts) == 2:
			files = append(files, parts[0], parts[1], "append")
		default:
			files = append(files, name)
		}
	}
	return files
}
