package pgstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// BenchmarkPooledModes measures pgx's modes that work behind a pooler in transaction mode, and its default without one. The
// table in docs/decisions.md comes from it.
func BenchmarkPooledModes(b *testing.B) {
	ctx := b.Context()
	through, around := behind(b, pgtest.PgBouncerOptions{})
	for _, way := range []struct {
		name, dsn string
		mode      pgx.QueryExecMode
	}{
		{"direct/cache_statement", around, pgx.QueryExecModeCacheStatement},
		{"pooled/cache_describe", through, pgx.QueryExecModeCacheDescribe},
		{"pooled/exec", through, pgx.QueryExecModeExec},
		{"pooled/simple_protocol", through, pgx.QueryExecModeSimpleProtocol},
	} {
		store := migrated(b, openStore(b, way.dsn, Options{}, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = way.mode }))
		mustExec(b, store, "create table if not exists public.model (position bigint not null, at bigint generated always as identity)")
		e := event.Event{Type: "Counted", Body: []byte(`{"amount": 12.5}`)}
		b.Run(way.name+"/append", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, err := store.Append(ctx, fmt.Sprintf("%s-%d", b.Name(), i%100), event.Any, e); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(way.name+"/batch", func(b *testing.B) {
			o := claimAs(b, store, projection.DefaultTenant)
			events, err := o.pending()
			if err != nil {
				b.Fatal(err)
			}
			batch := engine.Batch{Events: events[:1], To: o.lease.Checkpoint + 1}
			apply := store.port().apply(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
				_, err := tx.Exec(ctx, "insert into public.model (position) values ($1)", events[0].Position)
				return err
			}, engine.ApplyOptions{})
			for b.Loop() {
				if err := apply(ctx, o.lease, batch); err != nil {
					b.Fatal(err)
				}
				o.lease.Checkpoint, batch.To = batch.To, batch.To+1
			}
		})
		b.Run(way.name+"/read", func(b *testing.B) {
			for b.Loop() {
				if _, err := store.port().Read(ctx, projection.DefaultTenant, engine.ReadRange{UpTo: maxPosition, Limit: 100, MaxBytes: 1 << 20}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
