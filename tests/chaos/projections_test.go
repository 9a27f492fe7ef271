package chaos_test

import (
	"context"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// The types of the events.
const (
	typePlain  = "plain"
	typeOdd    = "odd"
	typePoison = "poison" // fails in the projection shipments until its dependency is available
	typeDeadly = "deadly" // ends the process in the projection deadly
)

// tenants are the tenants of every cluster. Each projection runs for each of them.
var tenants = []string{projection.DefaultTenant, "acme", "bolt"}

// projectionTypes are the projections and the event types that they select; nil means all.
var projectionTypes = map[string][]string{
	"ledger": nil,          // a batch handler
	"search": nil,          // a batch handler with asynchronous commits
	"totals": nil,          // a handler that queues its statements
	"audit":  {typeOdd},    // an event handler
	deadly:   {typeDeadly}, // an event handler that ends its process
	// a batch handler whose failing streams are parked and replayed automatically
	shipments: {typePlain, typeOdd, typePoison},
}

const (
	deadly     = "deadly"
	shipments  = "shipments"
	deadlyExit = 13
)

// projections returns the projections of a node. They park an event after two counted failures, audit after one, so
// that an outage that is counted by mistake shows as a dead letter. Dead letters of shipments are replayed without
// limit.
func projections(o *orders, node string, timeout time.Duration) []millrace.Projection {
	impatient := projection.RetryPolicy{MaxAttempts: 2, Base: 20 * time.Millisecond}
	batch := func(name string) func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			if err := record(ctx, tx, node, events...); err != nil {
				return err
			}
			id, _ := millrace.ProjectionFrom(ctx)
			if err := o.failAsOrdered(ctx, tx, id, events); err != nil {
				return err
			}
			if name == shipments {
				if err := useDependency(ctx, tx, id.Tenant, events); err != nil {
					return err
				}
				if err := o.inReplay(ctx, tx, id, events); err != nil {
					return err
				}
			}
			o.afterWriting(ctx, id)
			return nil
		}
	}
	return []millrace.Projection{
		{Name: "ledger", Handler: pgstore.Batch(batch("ledger")), MaxEvents: 100, Retry: impatient, Timeout: timeout},
		{
			Name: "search", Handler: pgstore.Batch(batch("search")), AsyncCommit: true, Retry: impatient,
			Timeout: timeout,
		},
		{Name: "totals", MaxEvents: 100, Retry: impatient, Timeout: timeout,
			Handler: pgstore.Queued(func(ctx context.Context, q pgstore.Queue, events []event.Envelope) error {
				id, _ := millrace.ProjectionFrom(ctx)
				sql, args := recordSQL(id, node, events)
				q.Exec(sql, args...)
				o.queueAsOrdered(q, id, events)
				o.afterWriting(ctx, id)
				return nil
			})},
		{Name: "audit", Types: projectionTypes["audit"], MaxEvents: 1, Retry: projection.RetryPolicy{MaxAttempts: 1},
			Timeout: 3 * time.Second,
			Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
				id, _ := millrace.ProjectionFrom(ctx)
				if err := record(ctx, tx, node, e); err != nil {
					return err
				}
				o.whileHeld(ctx)
				return o.failAsOrdered(ctx, tx, id, []event.Envelope{e})
			})},
		{Name: deadly, Types: projectionTypes[deadly], Retry: impatient, Timeout: 3 * time.Second,
			Handler: pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error {
				os.Exit(deadlyExit)
				return nil
			})},
		{Name: shipments, Types: projectionTypes[shipments], Handler: pgstore.Batch(batch(shipments)), MaxEvents: 100,
			Retry: impatient, Timeout: timeout,
			OnFailure: projection.ActionParkStream, MaxFailureShare: projection.NoLimit, MaxParked: projection.NoLimit,
			MaxBlocked: projection.NoLimit,
			Replay: projection.ReplayPolicy{
				Interval: 100 * time.Millisecond, Factor: 1, MaxReplays: projection.NoLimit,
			}},
	}
}

// appliedTable shows every way in which events can be applied wrongly: it has no unique index, and a column for the
// order.
const appliedTable = `create table public.applied (id bigint generated always as identity, tenant text not null, projection text not null,
	position bigint not null, stream text not null, version bigint not null, node text not null, token text not null default '');
	create index on public.applied (tenant, projection, id)`

// record inserts the events that a projection was given, in their order.
func record(ctx context.Context, tx pgx.Tx, node string, events ...event.Envelope) error {
	id, _ := millrace.ProjectionFrom(ctx)
	sql, args := recordSQL(id, node, events)
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

func recordSQL(id projection.ID, node string, events []event.Envelope) (sql string, args []any) {
	positions, streams, versions, bodies := make([]int64, len(events)), make([]string, len(events)),
		make([]int64, len(events)), make([]string, len(events))
	for i, e := range events {
		positions[i], streams[i], versions[i], bodies[i] = e.Position, e.Stream, e.Version, string(e.Body)
	}
	return "/* " + id.Name + " */ " +
			`insert into public.applied (tenant, projection, position, stream, version, node, token)
		select $1, $2, e.position, e.stream, e.version, $3, coalesce(e.body::jsonb->>'token', '')
		  from unnest($4::bigint[], $5::text[], $6::bigint[], $7::text[]) with ordinality as e (position, stream, version, body, n) order by e.n`,
		[]any{id.Tenant, id.Name, node, positions, streams, versions, bodies}
}
