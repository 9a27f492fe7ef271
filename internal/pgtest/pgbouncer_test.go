package pgtest_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
)

func TestPoolerSharesOneSessionAmongClients(t *testing.T) {
	dsn := pgtest.Database(t)
	pooler := pgtest.Pooler(t, dsn, pgtest.PgBouncerOptions{PoolSize: 1})
	database := ask(t, dsn, "select current_database()")
	through := pooler.DSN(database)
	one, two := connect(t, through), connect(t, through)
	pid := func(conn *pgx.Conn) (pid uint32) {
		try(t, conn.QueryRow(t.Context(), "select pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid))
		return pid
	}
	if first, second := pid(one), pid(two); first != second || first == one.PgConn().PID() {
		t.Errorf("sessions %d and %d, the client has %d", first, second, one.PgConn().PID())
	}
	try(t, pooler.Restart(t.Context()))
	if err := one.Ping(t.Context()); err == nil {
		t.Error("a connection survived the pooler")
	}
	if got := ask(t, through, "select current_database()"); got != database {
		t.Errorf("got %q, want %q", got, database)
	}
}

func TestStoppedPoolerLeavesNothing(t *testing.T) {
	pooler := pgtest.Pooler(t, pgtest.Database(t), pgtest.PgBouncerOptions{})
	dir := pooler.Folder()
	if runtime.GOOS == "linux" && len(pgtest.ProcessesIn(dir)) != 1 {
		t.Errorf("processes %v in %s, want one", pgtest.ProcessesIn(dir), dir)
	}
	try(t, pooler.Stop(context.Background()))
	gone(t, dir)
	if left := pgtest.ProcessesIn(dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if err := pooler.Restart(t.Context()); err == nil {
		t.Error("a stopped pooler was started again")
	}
}
