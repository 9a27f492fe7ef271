package pgstore

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestMoveReadsOnlyItsTenant reads the rows of one tenant's projections, among many others.
func TestMoveReadsOnlyItsTenant(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const tenants, projections, rows = 200, 20, 10
	for _, insert := range []string{
		`insert into millrace.tenants (tenant, schema_name, version) select 't' || n, 't' || n, 1 from generate_series(1, $1::int) n where $2::int > 0 and $3::int > 0`,
		`insert into millrace.projections (tenant, name) select 't' || n, 'p' || m from generate_series(1, $1::int) n, generate_series(1, $2::int) m where $3::int > 0`,
		`insert into millrace.leases (id) select id from millrace.projections where $1::int + $2::int + $3::int > 0`,
		`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, error, stack, attempts, first_failed_at, last_failed_at)
			select p.id, n, 's' || n, 1, 'T', 'bad', '', 5, now(), now() from millrace.projections p, generate_series(1, $3::int) n where $1::int + $2::int > 0`,
		`insert into millrace.parked_streams (projection_id, stream_id) select p.id, 's' || n from millrace.projections p, generate_series(1, $3::int) n where $1::int + $2::int > 0`,
		`insert into millrace.commands (projection_id, kind, max_events, ended_at) select p.id, 'replay', 1, now() from millrace.projections p, generate_series(1, $3::int) n where $1::int + $2::int > 0`,
		`insert into millrace.retired_projections (tenant, name, reason) select 't' || n, 'r' || m, 'forgotten' from generate_series(1, $1::int) n, generate_series(1, $2::int) m where $3::int > 0`,
		`insert into millrace.aliases (tenant, name, stream_id) select 't' || n, 'a' || m, 's' from generate_series(1, $1::int) n, generate_series(1, $2::int) m where $3::int > 0`,
	} {
		mustExec(t, store, insert, tenants, projections, rows)
	}
	mustExec(t, store,
		"vacuum analyze millrace.projections, millrace.leases, millrace.dead_letters, millrace.parked_streams, millrace.commands, millrace.retired_projections, millrace.aliases")
	for statement, offsets := range map[string][]any{"copy_projections": nil, "copy_dead_letters": {0, 0},
		"copy_parked_streams": {0}, "copy_commands": {0, 0},
		"copy_retired_projections": nil, "copy_aliases": nil, "ids_of_tenant": nil} {
		args := append([]any{pgx.QueryExecModeExec, "t100"}, offsets...)
		var returned int64
		read := readBy(t, store, "select", func(tx pgx.Tx) error {
			tag, err := tx.Exec(testContext(t), store.control.sql(statement), args...)
			returned = tag.RowsAffected()
			return err
		})
		for table, of := range read {
			if returned == 0 || of.Scans > 0 || of.Rows > 5*projections*rows {
				t.Errorf("%s: reads %+v of %s and returns %d rows\n%s", statement, of, table, returned,
					explain(t, store, store.control.sql(statement), args[1:]...))
			}
		}
	}
	// The control: a scan would be seen.
	if read := readBy(t, store, "select", func(tx pgx.Tx) error {
		_, err := tx.Exec(testContext(t), "select count(*) from millrace.dead_letters where error = ''")
		return err
	}); read["dead_letters"].Scans != 1 {
		t.Errorf("the control reads %+v", read)
	}
}
