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
	typePoison = "poison" // fails in the projection shipments, until what it needs is mended
	typeDeadly = "deadly" // ends the process of whoever handles it in the projection deadly
)

// tenants have the events. Each projection runs for each of them.
var tenants = []string{projection.DefaultTenant, "acme", "bolt"}

// concerns are the projections and the types that they select; nil means all.
var concerns = map[string][]string{
	"ledger":  nil,                              // a batch handler
	"search":  nil,                              // a batch handler that does not wait for the disk
	"audit":   {typeOdd},                        // an event handler
	deadly:    {typeDeadly},                     // an event handler that its process does not survive
	shipments: {typePlain, typeOdd, typePoison}, // a batch handler that parks streams, and replays them by itself
}

const (
	deadly     = "deadly"
	shipments  = "shipments"
	deadlyExit = 13
)

// projections are those of a node. They park an event soon when what happens to it is counted, audit at once: outages must
// not be. What shipments parks is replayed as long as it fails.
func projections(o *orders, node string, deadline time.Duration) []millrace.Projection {
	impatient := projection.RetryPolicy{MaxAttempts: 2, Base: 20 * time.Millisecond}
	batch := func(name string) func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			if err := record(ctx, tx, node, events...); err != nil {
				return err
			}
			id, _ := millrace.ProjectionFrom(ctx)
			if err := o.meets(ctx, tx, id, events); err != nil {
				return err
			}
			if name == shipments {
				if err := needs(ctx, tx, id.Tenant, events); err != nil {
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
		{Name: "ledger", Handler: pgstore.Batch(batch("ledger")), MaxEvents: 100, Retry: impatient, Timeout: deadline},
		{Name: "search", Handler: pgstore.Batch(batch("search")), AsyncCommit: true, Retry: impatient, Timeout: deadline},
		{Name: "audit", Types: concerns["audit"], MaxEvents: 1, Retry: projection.RetryPolicy{MaxAttempts: 1}, Timeout: 3 * time.Second,
			Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
				id, _ := millrace.ProjectionFrom(ctx)
				if err := record(ctx, tx, node, e); err != nil {
					return err
				}
				o.whileHeld(ctx)
				return o.meets(ctx, tx, id, []event.Envelope{e})
			})},
		{Name: deadly, Types: concerns[deadly], Retry: impatient, Timeout: 3 * time.Second,
			Handler: pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error {
				os.Exit(deadlyExit)
				return nil
			})},
		{Name: shipments, Types: concerns[shipments], Handler: pgstore.Batch(batch(shipments)), MaxEvents: 100, Retry: impatient, Timeout: deadline,
			OnFailure: projection.ActionParkStream, MaxFailureShare: -1, MaxParked: -1,
			Replay: projection.ReplayPolicy{Interval: 100 * time.Millisecond, Factor: 1, MaxReplays: -1}},
	}
}

// appliedTable shows every way in which events can be applied wrongly: it has no unique index, and a column for the order.
const appliedTable = `create table public.applied (id bigint generated always as identity, tenant text not null, projection text not null,
	position bigint not null, stream text not null, version bigint not null, node text not null, token text not null default '')`

// record writes down which events a projection was given, in their order.
func record(ctx context.Context, tx pgx.Tx, node string, events ...event.Envelope) error {
	id, _ := millrace.ProjectionFrom(ctx)
	positions, streams, versions, bodies := make([]int64, len(events)), make([]string, len(events)), make([]int64, len(events)), make([]string, len(events))
	for i, e := range events {
		positions[i], streams[i], versions[i], bodies[i] = e.Position, e.Stream, e.Version, string(e.Body)
	}
	_, err := tx.Exec(ctx, "/* "+id.Name+" */ "+`insert into public.applied (tenant, projection, position, stream, version, node, token)
		select $1, $2, e.position, e.stream, e.version, $3, coalesce(e.body::jsonb->>'token', '')
		  from unnest($4::bigint[], $5::text[], $6::bigint[], $7::text[]) with ordinality as e (position, stream, version, body, n) order by e.n`,
		id.Tenant, id.Name, node, positions, streams, versions, bodies)
	return err
}
