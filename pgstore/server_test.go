package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/tenancy"
)

func factsWith(setting, value string) serverFacts {
	f := serverFacts{
		version: 140000, versionName: "14.0", settings: map[string]string{"fsync": "on", "full_page_writes": "on"},
	}
	for _, required := range requiredSettings {
		f.settings[required.name] = required.value
	}
	f.settings[setting] = value
	return f
}

func TestUnsuitableServerIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	old, standby := factsWith("", ""), factsWith("", "")
	old.version, old.versionName, standby.inRecovery = 130009, "13.9", true
	for want, f := range map[string]serverFacts{
		"PostgreSQL 13.9, but 14 or newer":          old,
		"standby":                                   standby,
		`default_transaction_read_only is "on"`:     factsWith("default_transaction_read_only", "on"),
		`isolation is "serializable"`:               factsWith("default_transaction_isolation", "serializable"),
		`server_encoding is "LATIN1"`:               factsWith("server_encoding", "LATIN1"),
		`client_encoding is "WIN1252"`:              factsWith("client_encoding", "WIN1252"),
		`standard_conforming_strings is "off", but`: factsWith("standard_conforming_strings", "off"),
		`session_replication_role is "replica"`:     factsWith("session_replication_role", "replica"),
	} {
		err := f.check()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if errors.Is(err, event.ErrNotPrimary) != f.inRecovery {
			t.Errorf("%v: is it about a standby?", err)
		}
	}
}

func TestSettingsThatLoseDataAreLoggedAndNotRefused(t *testing.T) {
	t.Parallel()
	if f := factsWith("", ""); f.lossy() != nil {
		t.Errorf("logged %v", f.lossy())
	}
	for _, setting := range durabilitySettings {
		f := factsWith(setting, "off")
		if got := f.lossy(); !slices.Equal(got, []string{setting + "=off"}) || f.check() != nil {
			t.Errorf("logged %v, refused: %v", got, f.check())
		}
	}
}

func TestOpenRefusesSessionsThatCannotAppend(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	for setting, value := range map[string]string{
		"default_transaction_read_only": "on", "default_transaction_isolation": "repeatable read",
		"client_encoding":          "LATIN1",
		"session_replication_role": "replica",
	} {
		bad := must(pgtest.WithSetting(dsn, setting, value))(t)
		store, err := Open(testContext(t), bad, Options{})
		if err == nil {
			store.Close()
			t.Errorf("%s = %s is accepted", setting, value)
		} else if !strings.Contains(err.Error(), setting) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s = %s: error %v", setting, value, err)
		}
	}
}

// Sessions in another encoding would store other characters than those appended. A role or a database may get a default
// after Open.
func TestSessionsInAnotherEncodingAreRefusedAfterOpen(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	store := must(Open(ctx, pgtest.Database(t), Options{}))(t)
	t.Cleanup(store.Close)
	noError(t, store.Migrate(ctx))
	database := pgx.Identifier{store.pool.Config().ConnConfig.Database}.Sanitize()
	greeting := event.Event{Type: "Greeted", Body: []byte(`{"text": "Grüße"}`)}
	for setting, value := range map[string]string{"client_encoding": "LATIN1", "standard_conforming_strings": "off"} {
		mustExec(t, store, fmt.Sprintf("alter database %s set %s = '%s'", database, setting, value))
		store.pool.Reset()
		if _, err := store.Append(ctx, "s", event.Any, greeting); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("%s is %q", setting, value)) {
			t.Errorf("%s = %s: error %v", setting, value, err)
		}
		conn := must(pgx.Connect(ctx, store.pool.Config().ConnString()))(t)
		must(conn.Exec(ctx, fmt.Sprintf("alter database %s reset %s", database, setting)))(t)
		noError(t, conn.Close(ctx))
		must(store.Append(ctx, "s", event.Any, greeting))(t)
	}
	for e, err := range store.ReadStream(ctx, "s", 1) {
		noError(t, err)
		if string(e.Body) != string(greeting.Body) {
			t.Errorf("read %s, want %s", e.Body, greeting.Body)
		}
	}
}

// TestDateStyleOfTheRoleDoesNotMatter uses a style that the driver cannot read.
func TestDateStyleOfTheRoleDoesNotMatter(t *testing.T) {
	t.Parallel()
	dsn := must(pgtest.WithSetting(pgtest.Database(t), "DateStyle", "German, DMY"))(t)
	store := openStore(t, dsn, Options{})
	noError(t, store.Migrate(testContext(t)))
	must(store.CreateTenant(testContext(t), "acme"))(t)
	first, second := aNode(), aNode()
	present(t, store, first)
	session := must(connect(t, store, second))(t)
	if fleet := must(session.ListPeers(testContext(t)))(t); len(fleet.Peers) != 1 || fleet.Peers[0].ID != first.ID {
		t.Errorf("peers %+v", fleet.Peers)
	} else if age := time.Since(fleet.Peers[0].Beat); age.Abs() > time.Hour {
		t.Errorf("a heartbeat %s ago", age)
	}
	noError(t, store.ArchiveTenant(testContext(t), "acme"))
	noError(t, store.DropTenant(testContext(t), "acme", tenancy.DropOptions{Confirm: "acme"}))

	for _, mode := range []string{"exec", "simple_protocol"} {
		text := must(pgtest.WithSetting(dsn, "default_query_exec_mode", mode))(t)
		if store, err := Open(testContext(t), text, Options{}); err == nil {
			store.Close()
			t.Errorf("%s is accepted", mode)
		} else if !strings.Contains(err.Error(), `DateStyle is "German, DMY", but must be "ISO"`) {
			t.Errorf("%s: error %v", mode, err)
		}
	}
}

func TestOpenRefusesADatabaseOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	conn := must(pgx.Connect(testContext(t), dsn))(t)
	defer func() { _ = conn.Close(testContext(t)) }()
	name := conn.Config().Database + "_latin"
	must(conn.Exec(testContext(t), "create database "+name+" template template0 encoding 'LATIN1' locale 'C'"))(t)
	defer func() {
		if _, err := conn.Exec(testContext(t), "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	}()
	latin := must(pgtest.WithDatabase(dsn, name))(t)
	store, err := Open(testContext(t), latin, Options{})
	if err == nil {
		store.Close()
		t.Fatal("it is accepted")
	}
	if !strings.Contains(err.Error(), `server_encoding is "LATIN1"`) {
		t.Errorf("error %v", err)
	}
}

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
	} else if fault := classify(err); fault.Class != faults.Infrastructure {
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
	for _, sql := range []string{"update millrace.probe set probed_at = null",
		"lock table millrace.probe in access exclusive mode"} {
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
func TestProbeSucceedsIfOnlyItsObjectsAreAtFault(t *testing.T) {
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

func TestProbeFailsIfTheServerTakesNoWrites(t *testing.T) {
	t.Parallel()
	_, store := ownServer(t, nil)
	mustProbe(t, store, "at first")
	mustExec(t, store, "alter system set default_transaction_read_only = on")
	mustExec(t, store, "select pg_reload_conf()")
	for one[string](t, store, "show default_transaction_read_only") != "on" {
	}
	mustNotProbe(t, store, "read-only", "25006")
}

func TestProbeFailsIfTheServerIsUnreachable(t *testing.T) {
	t.Parallel()
	server, store := ownServer(t, nil)
	noError(t, server.Kill())
	mustNotProbe(t, store, "killed", "probe the server")
	noError(t, server.StartAgain(testContext(t)))
	mustProbe(t, store, "started again")
}

// If the server has no connection left, existing connections still work.
func TestProbeTakesAConnectionOfThePoolIfTheServerHasNoneLeft(t *testing.T) {
	t.Parallel()
	_, store := ownServer(t, map[string]string{"max_connections": "12",
		"superuser_reserved_connections": "0", "max_wal_senders": "0"})
	ctx := testContext(t)
	mustProbe(t, store, "at first")
	var last error
	for range 20 {
		conn, err := pgx.ConnectConfig(ctx, store.pool.Config().ConnConfig)
		last = err
		if err != nil {
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
