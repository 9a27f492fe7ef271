package commandline

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// clinic is a server on which set-ups are broken, each in a database of its own.
type clinic struct {
	t      *testing.T
	server *pgtest.Server
	admin  *pgx.Conn
	dsn    string
}

// exec runs statements in the database. A name in braces is a role of this test alone.
func (c *clinic) exec(sql string) {
	c.t.Helper()
	if _, err := c.admin.Exec(c.t.Context(), c.named(sql), pgx.QueryExecModeSimpleProtocol); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

func (c *clinic) named(text string) string {
	return strings.ReplaceAll(text, "{app}", "app_"+strings.Trim(strings.ToLower(filepath.Base(c.t.Name())), "_"))
}

// as returns the DSN of a role.
func (c *clinic) as(role string) string {
	c.t.Helper()
	u, err := url.Parse(c.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	u.User = url.User(c.named(role))
	return u.String()
}

func (c *clinic) with(setting, value string) string {
	c.t.Helper()
	dsn, err := pgtest.WithSetting(c.dsn, setting, value)
	if err != nil {
		c.t.Fatal(err)
	}
	return dsn
}

// open opens another connection, which lasts until the end of the test.
func (c *clinic) open() *pgx.Conn {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (c *clinic) execOn(conn *pgx.Conn, sql string) {
	c.t.Helper()
	if _, err := conn.Exec(c.t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// examine runs the doctor and returns its findings.
func examine(t *testing.T, args ...string) []projection.Finding {
	t.Helper()
	out, errs, status := place{}.run(t, append([]string{"doctor", "--json"}, args...)...)
	var result doctorJSON
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v: %q, %q, status %d", err, out, errs, status)
	}
	if want := done; len(result.Findings) == 0 && status != want ||
		len(result.Findings) > 0 && status != foundSomething {
		t.Errorf("status %d with %d findings", status, len(result.Findings))
	}
	return result.Findings
}

// brokenDatabases are set-ups by what is wrong with them. break returns the arguments of the doctor.
var brokenDatabases = map[string]struct {
	check, says string
	breaks      func(c *clinic) (args []string)
}{
	"isolation": {"settings", `default_transaction_isolation is "serializable"`, func(c *clinic) []string {
		c.exec("do $$ begin execute format('alter database %I set default_transaction_isolation = serializable', current_database()); end $$")
		return nil
	}},
	"no_foreign_keys": {"settings", `session_replication_role is "replica"`, func(c *clinic) []string {
		c.exec("do $$ begin execute format('alter database %I set session_replication_role = replica', current_database()); end $$")
		return nil
	}},
	"hidden_rows": {"permissions", "hides rows of millrace.tenants, millrace_default.events", func(c *clinic) []string {
		c.exec(`create role {app} login; grant usage on schema millrace, millrace_default to {app};
			grant select, insert, update, delete on all tables in schema millrace, millrace_default to {app};
			alter table millrace.tenants enable row level security; alter table millrace_default.events enable row level security;
			create policy part on millrace_default.events using (stream_id <> 'hidden') with check (true);
			alter table millrace.leases enable row level security; create policy whole on millrace.leases using (true)`)
		return []string{"--database-url", c.as("{app}")}
	}},
	"no_schema": {"schema", "does not exist", func(c *clinic) []string { return []string{"--schema", "other"} }},
	"no_tenant_schema": {"tenants", "the schemas of tenants are gone: default", func(c *clinic) []string {
		c.exec("drop schema millrace_default cascade")
		return nil
	}},
	"interrupted_drop": {"tenants", `in the state "dropping": default`, func(c *clinic) []string {
		c.exec("update millrace.tenants set state = 'dropping'")
		return nil
	}},
	"no_rights": {"permissions", "usage on schema millrace", func(c *clinic) []string {
		c.exec("create role {app} login")
		return []string{"--database-url", c.as("{app}")}
	}},
	"one_right": {"permissions", "update on millrace.leases", func(c *clinic) []string {
		c.exec(`create role {app} login; grant usage on schema millrace, millrace_default to {app};
			grant select, insert, update, delete on all tables in schema millrace, millrace_default to {app}; revoke update on millrace.leases from {app}`)
		return []string{"--database-url", c.as("{app}")}
	}},
	"dropped_index": {"indexes", "millrace.leases (owner)", func(c *clinic) []string {
		c.exec("drop index millrace.leases_owner_idx")
		return nil
	}},
	"dropped_constraint": {"indexes", "millrace_default.events (stream_id, stream_version)", func(c *clinic) []string {
		c.exec("alter table millrace_default.events drop constraint events_stream_id_stream_version_key")
		return nil
	}},
	"invalid_index": {"indexes", "millrace.leases (owner)", func(c *clinic) []string {
		c.exec("update pg_catalog.pg_index set indisvalid = false where indexrelid = 'millrace.leases_owner_idx'::regclass")
		return nil
	}},
	"sequence_cache": {"sequences", "millrace_default.events_global_seq_seq", func(c *clinic) []string {
		c.exec("alter sequence millrace_default.events_global_seq_seq cache 20")
		return nil
	}},
	"sequence_set_back": {"sequences", "below a checkpoint: millrace_default.events_global_seq_seq",
		func(c *clinic) []string {
			c.exec(`insert into millrace_default.events (stream_id, stream_version, type, body) select 'order-1', n, 'OrderPlaced', '{}' from generate_series(1, 3) n;
			insert into millrace.projections (tenant, name) values ('default', 'totals');
			insert into millrace.leases (id, checkpoint, free_since) select id, 3, clock_timestamp() + interval '1 day' from millrace.projections;
			select setval('millrace_default.events_global_seq_seq', 2)`)
			return nil
		}},
	"sequence_never_called": {"sequences", "below a checkpoint: millrace_default.events_global_seq_seq",
		func(c *clinic) []string {
			c.exec(`insert into millrace_default.events (global_seq, stream_id, stream_version, type, body) overriding system value values (9, 'order-1', 1, 'OrderPlaced', '{}');
			insert into millrace.projections (tenant, name) values ('default', 'totals');
			insert into millrace.leases (id, checkpoint, free_since) select id, 9, clock_timestamp() + interval '1 day' from millrace.projections`)
			return nil
		}},
	"wrong_session": {
		"listener", "did not arrive",
		func(c *clinic) []string { return []string{"--session-url", c.server.DSN("postgres")} },
	},
	"large_pool": {
		"connections",
		"pools of 500 connections on 1 nodes, with their session connections, need up to 501, but the server accepts",
		func(c *clinic) []string { return []string{"--database-url", c.with("pool_max_conns", "500")} },
	},
	"role_limit": {"connections", "the role accepts 2", func(c *clinic) []string {
		c.exec(`create role {app} login superuser connection limit 2`)
		return []string{"--database-url", c.as("{app}")}
	}},
	"stuck_append": {"transactions", "it has appended events, so projections wait for it", func(c *clinic) []string {
		c.execOn(c.open(), "begin; lock table millrace_default.events in row exclusive mode")
		return []string{"--patience", "1ms"}
	}},
	"old_snapshot": {"transactions", "it keeps dead rows", func(c *clinic) []string {
		c.execOn(c.open(), "begin isolation level repeatable read; select 1")
		return []string{"--patience", "1ms"}
	}},
	"prepared": {"prepared transactions", `"forgotten"`, func(c *clinic) []string {
		c.exec("begin; create table t (); prepare transaction 'forgotten'")
		c.t.Cleanup(func() { _, _ = c.admin.Exec(context.Background(), "rollback prepared 'forgotten'") })
		return []string{"--patience", "1ms"}
	}},
	"bloat": {"leases", "KiB for 2000 rows", func(c *clinic) []string {
		c.execOn(c.open(), "begin isolation level repeatable read; select 1")
		c.exec(`insert into millrace.projections (tenant, name) select 'default', 'p' || n from generate_series(1, 2000) n;
			insert into millrace.leases (id, free_since) select id, clock_timestamp() + interval '1 day' from millrace.projections`)
		for range 40 {
			c.exec("update millrace.leases set checkpoint = checkpoint")
		}
		return nil
	}},
	"no_vacuum": {"leases", "autovacuum is turned off", func(c *clinic) []string {
		c.exec("alter table millrace.leases set (autovacuum_enabled = false)")
		return nil
	}},
	"logged_incarnation": {"incarnation", "must be UNLOGGED", func(c *clinic) []string {
		c.exec("alter table millrace.incarnation set logged")
		return nil
	}},
	"pooler": {"pooler", "goes through a pooler in transaction mode", func(c *clinic) []string {
		pooler := pgtest.Pooler(c.t, c.dsn, pgtest.PgBouncerOptions{})
		return []string{"--database-url", pooler.DSN(databaseOf(c.t, c.dsn))}
	}},
	"unreachable": {"connection", "cannot be reached", func(c *clinic) []string {
		return []string{"--database-url", "postgres://127.0.0.1:1/nothing?connect_timeout=5"}
	}},
}

func databaseOf(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return config.Database
}

// soundServer returns a server whose settings lose nothing.
func soundServer(t *testing.T) *pgtest.Server {
	t.Helper()
	return pgtest.Private(t, pgtest.Options{InMemory: true, Settings: map[string]string{"fsync": "on"}})
}

// newClinic returns a migrated database on the server.
func newClinic(t *testing.T, server *pgtest.Server) *clinic {
	t.Helper()
	name := strings.ToLower(filepath.Base(t.Name()))
	boss, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer boss.Close(t.Context())
	if _, err := boss.Exec(t.Context(), "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	c := &clinic{t: t, server: server, dsn: server.DSN(name)}
	c.admin = c.open()
	(place{flags: []string{"--database-url", c.dsn}}).must(t, done, "migrate", "up")
	return c
}

func TestDoctorFindsBrokenDatabases(t *testing.T) {
	t.Parallel()
	server := soundServer(t)
	t.Run("each", func(t *testing.T) {
		for name, broken := range brokenDatabases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := newClinic(t, server)
				args := broken.breaks(c)
				if !strings.Contains(strings.Join(args, " "), "--database-url") {
					args = append(args, "--database-url", c.dsn)
				}
				mustFind(t, examine(t, args...), broken.check, broken.says)
			})
		}
	})
}

// mustFind checks that one thing was found, and nothing else.
func mustFind(t *testing.T, found []projection.Finding, check, says string) {
	t.Helper()
	if len(found) != 1 || found[0].Check != check || !strings.Contains(found[0].Problem, says) ||
		found[0].Advice == "" {
		t.Errorf("found %+v, want only %s: %s", found, check, says)
	}
}

func TestDoctorFindsNothingOnASoundDatabase(t *testing.T) {
	t.Parallel()
	server := soundServer(t)
	c := newClinic(t, server)
	p := place{name: "postgres", at: c.dsn, flags: []string{"--database-url", c.dsn}}
	p.startNode(t)
	p.must(t, done, "tenants", "create", "acme", "globex")
	p.must(t, done, "events", "append", "order-1", "OrderPlaced")
	(&transcript{t: t, place: p}).awaitAll(1)
	p.await(t, `globex/totals +1 +live`, "projections", "list", "--all-tenants")
	if found := examine(t, p.flags...); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	for setting, value := range map[string]string{"DateStyle": "German, DMY", "quote_all_identifiers": "on"} {
		if found := examine(t, "--database-url", c.with(setting, value)); len(found) > 0 {
			t.Errorf("%s = %s: found %+v", setting, value, found)
		}
	}
	if out := p.must(t, done, "doctor"); out != "nothing is wrong\n" {
		t.Error(out)
	}
	documentDoctor(c, p)
	// A pooler is no fault if sessions bypass it.
	pooler := pgtest.Pooler(t, c.dsn, pgtest.PgBouncerOptions{})
	if found := examine(t, "--database-url", pooler.DSN(databaseOf(t, c.dsn)), "--session-url", c.dsn); len(found) > 0 {
		t.Errorf("behind a pooler, found %+v", found)
	}
}

// documentDoctor compares what the doctor prints with docs/cli.md.
func documentDoctor(c *clinic, p place) {
	c.t.Helper()
	s := &transcript{t: c.t, place: p}
	c.exec("alter table millrace.leases set (autovacuum_enabled = false)")
	s.step(foundSomething, "doctor")
	s.step(foundSomething, "doctor", "--json")
	c.exec("alter table millrace.leases reset (autovacuum_enabled)")
	document(c.t, "doctor", s.text.String())
}

func TestDoctorFindsAStandbyAndLossySettings(t *testing.T) {
	t.Parallel()
	server := soundServer(t)
	p := place{flags: []string{"--database-url", server.TCPDSN("postgres")}}
	p.must(t, done, "migrate", "up")
	standby, err := server.Standby(t.Context(), pgtest.StandbyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	mustFind(t, examine(t, "--database-url", standby.TCPDSN("postgres")), "standby", "is a standby in recovery")
	mustFind(t, examine(t, "--database-url", server.TCPDSN("postgres"), "--session-url", standby.TCPDSN("postgres")),
		"session connection", "leads to a standby")
	hosts := pgtest.HostsDSN("postgres", "", standby.Address(), server.Address())
	if found := examine(t, "--database-url", hosts); len(found) > 0 {
		t.Errorf("with a standby and its primary: %+v", found)
	}

	lossy := pgtest.Private(t, pgtest.Options{InMemory: true, Settings: map[string]string{"fsync": "off"}})
	p = place{flags: []string{"--database-url", lossy.DSN("postgres")}}
	p.must(t, done, "migrate", "up")
	mustFind(t, examine(t, p.flags...), "settings", "fsync=off")
}

func TestDoctorFindsProjectionsWithoutANode(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		node := p.startNode(t)
		p.await(t, `totals +1 +live`, "projections", "list")
		node.end(os.Kill)
		p.await(t, "projections: projections that should run and have no living owner: 2", "doctor")
	})
}

func TestDoctorFindsBrokenFiles(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]struct {
		check, says string
		breaks      func(t *testing.T, path string)
	}{
		"empty": {"schema", "the file is at version 0", func(t *testing.T, path string) { write(t, path, nil) }},
		"foreign": {"file", "is not a store of millrace", func(t *testing.T, path string) {
			write(t, path, []byte(strings.Repeat("a text, and no database\n", 50)))
		}},
		"damaged": {"file", "damaged", func(t *testing.T, path string) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := 2 * 4096; i < len(content); i++ {
				content[i] ^= 0x55
			}
			write(t, path, content)
		}},
		"moved": {"copy", "was moved", func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", path)
			if err == nil {
				defer func() { _ = db.Close() }()
				_, err = db.Exec(closedByEarlierVersion)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, read := range []string{"projections list", "projections status", "tenants list", "check",
				"dead-letters list"} {
				place{flags: []string{"--file", path}}.must(t, done, strings.Fields(read)...)
			}
			place{flags: []string{"--file", path}}.must(t, failed, "events", "append", "s", "T")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "shop.db")
			p := place{flags: []string{"--file", path}}
			p.must(t, done, "migrate", "up")
			p.must(t, done, "events", "append", "order-1", "OrderPlaced")
			if found := examine(t, p.flags...); len(found) > 0 {
				t.Fatalf("a sound file: %+v", found)
			}
			broken.breaks(t, path)
			mustFind(t, examine(t, p.flags...), broken.check, broken.says)
		})
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	for _, beside := range []string{"-wal", "-shm"} {
		_ = os.Remove(path + beside)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// closedByEarlierVersion is what an earlier version did to a file when it copied it to PostgreSQL.
const closedByEarlierVersion = `insert into millrace_copy (singleton, id, from_name, to_name) values (1, '1', 'shop.db', 'a database');
	create trigger millrace_events_insert_closed before insert on millrace_events begin select raise(abort, 'millrace: the store was moved to a database'); end;
	create trigger millrace_probe_update_closed before update on millrace_probe begin select raise(abort, 'millrace: the store was moved to a database'); end;
	create trigger millrace_tenants_update_closed before update on millrace_tenants begin select raise(abort, 'millrace: the store was moved to a database'); end`
