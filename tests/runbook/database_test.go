package runbook_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

var _ = add(map[string]func(s *scenario){
	"the-database-cannot-be-reached":        databaseAway,
	"the-address-leads-to-a-standby":        standbyAddress,
	"the-disk-of-the-server-is-full":        fullServer,
	"the-connections-are-used-up":           connectionsUsedUp,
	"events-arrive-only-every-few-seconds":  behindAPooler,
	"a-transaction-has-been-open-for-long":  oldSnapshot,
	"the-leases-are-bloated":                bloatedLeases,
	"a-sequence-has-a-cache":                sequenceCache,
	"the-events-of-a-tenant-cannot-be-read": lockedEvents,
	"the-events-end-below-the-checkpoint":   restored,
	"a-failover-lost-commits":               lostCommits,
	"the-schema-of-a-tenant-is-gone":        droppedSchema,
	"the-store-is-not-migrated":             notMigrated,
	"a-role-lacks-rights":                   missingRights,
	"the-clocks-differ":                     differentClocks,
})

// private starts a server for one scenario.
func (s *scenario) private(settings map[string]string) *pgtest.Server {
	s.Helper()
	server := pgtest.Private(s, sound(settings))
	s.open(server.TCPDSN("postgres"))
	return server
}

func databaseAway(s *scenario) {
	server := s.private(nil)
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.must(server.Kill())
	s.follow()
	s.must(server.StartAgain(s.ctx))
	s.eventually("events can be appended again", func() bool {
		_, err := s.store.Append(s.ctx, "order-17", event.Any.WithKey("again"), event.Untyped("OrderPlaced", nil))
		return err == nil
	})
	s.follow()
}

func standbyAddress(s *scenario) {
	server := s.private(nil)
	standby, err := server.Standby(s.ctx, pgtest.StandbyOptions{})
	s.must(err)
	s.Cleanup(func() { s.must(standby.Stop(context.Background())) })
	s.must(server.CatchUp(s.ctx, standby))
	app := userOf(s, s.dsn)
	s.dsn = withUser(s, standby.TCPDSN("postgres"), app)
	s.follow()
	s.call("postgres://shop@db-a,db-b/shop", withUser(s,
		pgtest.HostsDSN("postgres", "", standby.Address(), server.Address()), app))
	s.follow()
}

// fullServer fills the disk of the tablespace in which the database is.
func fullServer(s *scenario) {
	server := pgtest.Private(s, sound(nil))
	s.superuser = server.DSN("postgres")
	s.sql("create tablespace small location '" + s.smallTablespace() + "'")
	s.sql("create database small template template0 tablespace small")
	s.open(server.DSN("small"))
	s.creates("create table filler (t text); create table bulky (t text)")
	const words = "(select string_agg(md5((g * random())::text), '') from generate_series(1, 20000) g)"
	full := make(chan struct{})
	s.node(soon("shop-1"), totals(func(ctx context.Context, tx pgx.Tx, _ event.Envelope) error {
		select {
		case <-full:
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err := tx.Exec(ctx, "insert into bulky values ("+words+")")
		return err
	}))
	s.append("", "OrderPlaced")
	for _, chunk := range []string{words, "repeat('x', 2000)"} {
		var err error
		for err == nil {
			_, err = s.owner.Pool().Exec(s.ctx, "insert into filler values ("+chunk+")")
		}
		if !strings.Contains(err.Error(), "53100") {
			s.Fatal(err)
		}
	}
	close(full)
	s.follow()
	s.creates("drop table filler")
}

// smallTablespace returns a folder of the server's user on a small disk.
func (s *scenario) smallTablespace() string {
	s.Helper()
	dir, err := os.MkdirTemp("", "millrace-small-")
	s.must(err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := mountSmall(dir, "24m"); err != nil {
		s.Skipf("needs a small disk, which only root can mount: %v", err)
	}
	s.Cleanup(func() { unmount(dir) })
	var data string
	s.must(s.connection().QueryRow(s.ctx, "show data_directory").Scan(&data))
	s.must(giveTo(dir, data))
	return dir
}

func connectionsUsedUp(s *scenario) {
	server := pgtest.Private(s, sound(map[string]string{"max_connections": "20"}))
	s.superuser = server.DSN("postgres")
	s.sql("create database shop")
	s.open(server.TCPDSN("shop"))
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	for {
		conn, err := pgx.Connect(s.ctx, s.dsn+"&application_name=report")
		if err != nil {
			break
		}
		s.Cleanup(func() { _ = conn.Close(context.Background()) })
	}
	s.follow()
	s.follow()
	s.follow()
}

func userOf(s *scenario, dsn string) string {
	s.Helper()
	u, err := url.Parse(dsn)
	s.must(err)
	return u.User.Username()
}

func withUser(s *scenario, dsn, user string) string {
	s.Helper()
	u, err := url.Parse(dsn)
	s.must(err)
	u.User = url.User(user)
	return u.String()
}

func behindAPooler(s *scenario) {
	s.database()
	direct := s.dsn
	config, err := pgx.ParseConfig(direct)
	s.must(err)
	pooler := pgtest.Pooler(s, direct, pgtest.PgBouncerOptions{PoolSize: 10})
	s.dsn = pooler.DSN(config.Database)
	stop := s.node(kit.On(soon("shop-1"), s.opened(s.dsn, pgstore.Options{})), totals(nil))
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.follow()
	stop()
	s.call("postgres://shop@db.example.com/shop", direct)
	s.follow()
	quick := kit.On(soon("shop-1"), s.opened(s.dsn, pgstore.Options{SessionDSN: direct}))
	quick.PollInterval = time.Hour
	s.node(quick, totals(nil))
	s.append("", "OrderPlaced")
}

func oldSnapshot(s *scenario) {
	s.database()
	open := s.connection()
	_, err := open.Exec(s.ctx, "set application_name = 'report'; begin isolation level repeatable read; select 1",
		pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	s.call("4711", fmt.Sprint(open.PgConn().PID()))
	s.follow()
	s.follow()
}

// bloatedLeases has a server of its own: a transaction in any database keeps dead rows.
func bloatedLeases(s *scenario) {
	s.private(nil)
	s.sql("alter table millrace.leases set (autovacuum_enabled = false)")
	s.sql(`insert into millrace.projections (tenant, name) select 'default', 'p' || n from generate_series(1, 2000) n;
		insert into millrace.leases (id, free_since) select id, clock_timestamp() + interval '1 day' from millrace.projections`)
	open := s.connection()
	_, err := open.Exec(s.ctx, "begin isolation level repeatable read; select 1", pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	for range 40 {
		s.sql("update millrace.leases set checkpoint = checkpoint")
	}
	_, err = open.Exec(s.ctx, "rollback")
	s.must(err)
	s.follow()
	s.follow()
	s.follow()
}

// sequenceCache lets a session append at a position that another session has passed.
func sequenceCache(s *scenario) {
	s.database()
	s.sql("alter sequence millrace_default.events_global_seq_seq cache 20")
	s.node(soon("shop-1"), totals(nil))
	first, second := s.connection(), s.connection()
	insert := func(conn *pgx.Conn, stream string) {
		s.Helper()
		_, err := conn.Exec(s.ctx,
			"insert into millrace_default.events (stream_id, stream_version, type, body, headers) values ($1, 1, 'OrderPlaced', '{}', '{}')", stream)
		s.must(err)
	}
	insert(first, "order-1")
	insert(second, "order-2")
	s.reaches("", 21)
	insert(first, "order-3")
	s.follow()
	s.follow()
	s.must(errors.Join(first.Close(s.ctx), second.Close(s.ctx)))
	s.follow()
	s.follow()
}

func lockedEvents(s *scenario) {
	s.database()
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	open := s.connection()
	_, err := open.Exec(s.ctx, "set application_name = 'maintenance'; begin; lock table millrace_default.events",
		pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	s.call("4711", fmt.Sprint(open.PgConn().PID()))
	s.follow()
	s.follow()
}

func restored(s *scenario) {
	s.database()
	config := soon("shop-1")
	config.PollInterval = 100 * time.Millisecond
	s.node(config, totals(nil))
	s.append("", "OrderPlaced", "OrderPaid", "OrderSent")
	s.reaches("", 3)
	s.sql("delete from millrace_default.events where global_seq > 2; alter table millrace_default.events alter column global_seq restart with 3; update millrace_default.streams set version = 2")
	s.follow()
	s.follow()
	s.follow()
}

func lostCommits(s *scenario) {
	server := s.private(pgtest.AsyncCommits(nil))
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.sql("checkpoint")
	s.must(server.HoldWAL(s.ctx))
	_, err := s.store.Append(s.ctx, "order-18", event.Any, event.Untyped("OrderPlaced", nil))
	s.must(err)
	s.must(server.CrashBackend(s.ctx))
	s.follow()
	s.follow()
}

func droppedSchema(s *scenario) {
	s.database()
	_, err := s.owner.CreateTenant(s.ctx, "acme")
	s.must(err)
	config := soon("shop-1")
	config.PollInterval = 100 * time.Millisecond
	s.node(config, totals(nil))
	s.append("acme", "OrderPlaced")
	s.reaches("acme", 1)
	s.sql("alter schema millrace_acme rename to lost")
	s.follow()
	s.sql("alter schema lost rename to millrace_acme")
	s.follow()
}

func missingRights(s *scenario) {
	s.database()
	app := userOf(s, s.dsn)
	s.call("millrace_app", app)
	s.creates("revoke update on millrace.leases from " + app)
	s.append("", "OrderPlaced")
	s.node(soon("shop-1"), totals(nil))
	s.follow()
	s.follow()
}

func notMigrated(s *scenario) {
	server, err := shared()
	s.must(err)
	s.roles(pgtest.DatabaseOn(s, server.DSN("postgres")))
	s.follow()
	s.follow()
}

// differentClocks lets the server's clock, as the doctor sees it, go wrong.
func differentClocks(s *scenario) {
	s.database()
	s.sql("create schema wrong; create function wrong.clock_timestamp() returns timestamptz language sql as $$ select pg_catalog.clock_timestamp() + interval '1 hour' $$; grant usage on schema wrong to public")
	right := s.dsn
	var err error
	s.dsn, err = pgtest.WithSetting(right, "options", "-c search_path=wrong,pg_catalog,public")
	s.must(err)
	s.follow()
	s.dsn = right
}
