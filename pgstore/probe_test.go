package pgstore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

func mustProbe(t *testing.T, store *Store, what string) {
	t.Helper()
	if err := store.port().Probe(testContext(t)); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func mustNotProbe(t *testing.T, store *Store, what, says string) {
	t.Helper()
	err := store.port().Probe(testContext(t))
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %q", what, err, says)
	} else if fault := classify(err); fault.Class != engine.Infrastructure {
		t.Errorf("%s: class %v", what, fault.Class)
	}
}

func TestProbeNeedsNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	store := onePool(t)
	taken := must(store.pool.Acquire(testContext(t)))(t)
	defer taken.Release()
	mustProbe(t, store, "with a pool that is used up")
}

// A lock of another session on the probe's row says nothing about the server.
func TestProbeThatHasToWaitForALockSucceeds(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for _, sql := range []string{"update millrace.probe set probed_at = null", "lock table millrace.probe in access exclusive mode"} {
		tx := openTx(t, store)
		execIn(t, tx, sql)
		mustProbe(t, store, sql)
		noError(t, tx.Rollback(testContext(t)))
	}
	before := one[bool](t, store, "select probed_at is null from millrace.probe")
	mustProbe(t, store, "afterwards")
	if after := one[bool](t, store, "select probed_at is null from millrace.probe"); !before || after {
		t.Errorf("the probe has written nothing: without a time before %v, after %v", before, after)
	}
}

// Missing tables and privileges are reported by the statements that need them, not by the probe.
func TestProbeSucceedsWhereOnlyItsObjectsAreAtFault(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	limited := asRole(t, store, "millrace_limited", "", Options{})
	mustExec(t, store, "revoke all on millrace.probe from millrace_limited")
	mustProbe(t, limited, "without a right to write")
	dsn := must(pgtest.WithSetting(store.pool.Config().ConnString(), "options", "-c temp_file_limit=0"))(t)
	mustProbe(t, openStore(t, dsn, Options{}), "without a right to temporary files")
	mustExec(t, store, "drop table millrace.probe")
	mustProbe(t, store, "without its table")
}

func TestProbeFailsWhereTheServerTakesNoWrites(t *testing.T) {
	t.Parallel()
	_, store := ownServer(t, nil)
	mustProbe(t, store, "at first")
	mustExec(t, store, "alter system set default_transaction_read_only = on")
	mustExec(t, store, "select pg_reload_conf()")
	for one[string](t, store, "show default_transaction_read_only") != "on" {
	}
	mustNotProbe(t, store, "read-only", "25006")
}

func TestProbeFailsWhereTheServerIsAway(t *testing.T) {
	t.Parallel()
	server, store := ownServer(t, nil)
	noError(t, server.Kill())
	mustNotProbe(t, store, "killed", "probe the server")
	noError(t, server.StartAgain(testContext(t)))
	mustProbe(t, store, "started again")
}

// A server without a connection to spare works for those who have one.
func TestProbeTakesOneOfThePoolWhereTheServerHasNoneLeft(t *testing.T) {
	t.Parallel()
	_, store := ownServer(t, map[string]string{"max_connections": "12", "superuser_reserved_connections": "0", "max_wal_senders": "0"})
	ctx := testContext(t)
	mustProbe(t, store, "at first")
	var last error
	for range 20 {
		conn, err := pgx.ConnectConfig(ctx, store.pool.Config().ConnConfig)
		if last = err; err != nil {
			break
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	}
	if !pgerr.Is(last, "53300") {
		t.Fatalf("connections are left: %v", last)
	}
	mustProbe(t, store, "with a free connection in the pool")
	var taken []interface{ Release() }
	for range store.pool.Stat().TotalConns() {
		conn := must(store.pool.Acquire(ctx))(t)
		taken = append(taken, conn)
	}
	mustNotProbe(t, store, fmt.Sprintf("with all %d in use", len(taken)), "53300")
	for _, conn := range taken {
		conn.Release()
	}
	mustProbe(t, store, "at last")
}
