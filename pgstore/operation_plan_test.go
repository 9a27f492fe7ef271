package pgstore

import (
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
)

// fillOperations inserts operations that have ended, and three that have not: of t150's p1, which no node carries out,
// of its p2, which holds it, and of its p3.
func fillOperations(t *testing.T, f *fleet) {
	t.Helper()
	mustExec(t, f.Store, `insert into millrace.operations (tenant, name, kind, holds, options, node, epoch, ended_at)
		select 't' || 1 + n % 10, 'p' || 1 + n % 100, 'rebuild', array['p1'], '', $1::uuid, 1, now() from generate_series(1, 5000) n`, f.nodes[0].ID)
	mustExec(t, f.Store, `insert into millrace.operations (tenant, name, kind, holds, options, node, epoch)
		select 't150', 'p' || n, 'rebuild', array['p' || n], '', case when n > 1 then $1::uuid end, 1 from generate_series(1, 3) n`, f.nodes[1].ID)
	mustExec(t, f.Store, "update millrace.operations set hook_runs = '{7}' where id = 5002")
	mustExec(t, f.Store, "update millrace.projections set held_by = 5002 where tenant = 't150' and name = 'p2'")
}

// operationStatements returns the statements of operations, which run seldom but for open_operations.
func operationStatements(f *fleet, l engine.Lease) []planned {
	c := f.control
	const free, holding, open = 5001, 5002, 5003
	names := func(name string) []string { return []string{name} }
	rows := []int32{l.Row}
	return []planned{
		{"open_operations", c.sql("open_operations"), []any{f.nodes[0].ID, []int64{}}, 1},
		{"operation", c.sql("operation"), []any{holding}, 1},
		{"open_operation", c.sql("open_operation"), []any{"t150", "p2"}, 1},
		{"insert_operation", c.sql("insert_operation"), []any{"t1", "p5", "rebuild", names("p5"), "", ""}, 1},
		{"take_operation", c.sql("take_operation"), []any{f.nodes[0].ID, free}, 1},
		{"hold", c.sql("hold"), []any{open, "t150", names("p3")}, 1},
		{"is_orphan", c.sql("is_orphan"), []any{free}, 1},
		{"versions", c.sql("versions"), []any{"t150", []string{"p2", "p2@2"}}, 1},
		{"succeeds", c.sql("succeeds"), []any{"t1", "p1"}, 1},
		{"operation_rows", c.sql("operation_rows"), []any{"t150", names("p2")}, 1},
		{"begin_hook", c.sql("begin_hook"), []any{holding, 1, 7}, 1},
		{"hook_returned", c.sql("hook_returned"), []any{holding, 7}, 1},
		{"note_operation", c.sql("note_operation"), []any{holding, 1, "bad"}, 1},
		{"end_operation", c.sql("end_operation"), []any{holding, 1, "failed", "bad"}, 1},
		{"release_holds", c.sql("release_holds"), []any{holding}, 1},
		{"rename_operations", c.sql("rename_operations"), []any{"t150", "p2", "new"}, 1},
		{"end_operation_of", c.sql("end_operation_of"), []any{"t150", "p2", "unknown", "bad"}, 1},
		{"lock_partitions", c.sql("lock_partitions"), []any{"t150", names("p2")}, 1},
		{"delivers", c.sql("delivers"), []any{"t150", "p2"}, 1},
		{"reset_projections", c.sql("reset_projections"), []any{rows, 0, 100}, 1},
		{"reset_leases", c.sql("reset_leases"), []any{rows, 0, 100}, 1},
	}
}
