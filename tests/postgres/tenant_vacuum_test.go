package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/tenancy"
)

// An autovacuum of a large table takes hours. The server cancels it for a transaction that waits for deadlock_timeout.
func TestArchiveAndDropDoNotWaitForAnAutovacuum(t *testing.T) {
	t.Parallel()
	b, _ := private(t, pgtest.Options{})
	for _, setting := range []string{"autovacuum = on", "autovacuum_naptime = '1s'",
		"autovacuum_vacuum_cost_delay = '100ms'", "autovacuum_vacuum_cost_limit = 1",
		"vacuum_cost_page_hit = 1", "deadlock_timeout = '2s'"} {
		b.exec("alter system set " + setting)
	}
	b.exec("select pg_reload_conf()")
	for name, do := range map[string]func(ctx context.Context) error{
		"archived": func(ctx context.Context) error { return b.store.ArchiveTenant(ctx, "archived") },
		"dropped": func(ctx context.Context) error {
			return b.store.DropTenant(ctx, "dropped", tenancy.DropOptions{Confirm: "dropped"})
		},
	} {
		tenant, err := b.store.CreateTenant(b.Ctx, name)
		b.Must(err)
		events := pgx.Identifier{tenant.EventsSchema(), "events"}.Sanitize()
		b.exec("insert into " + events +
			" (stream_id, stream_version, type, body) select 's', n, 'T', '{}' from generate_series(1, 100000) n")
		b.exec("delete from " + events + " where global_seq % 2 = 0")
		vacuums := func() bool {
			return value[int](b, "select count(*) from pg_stat_progress_vacuum where relid = $1::regclass", events) > 0
		}
		b.Eventually("an autovacuum works on "+events, vacuums)
		ctx, cancel := context.WithTimeout(b.Ctx, 90*time.Second)
		if err := do(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
