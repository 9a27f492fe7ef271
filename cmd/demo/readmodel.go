package main

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// retryBase is the delay before the first retry. It is short, so that an event is parked soon.
const retryBase = 20 * time.Millisecond

// readModel is a projection of the demo: its table, its handler, and the SQL that computes what the table must contain.
type readModel struct {
	// name is the name of the projection and of its table in schema demo.
	name string
	// eventType is the only event type that the projection handles; empty means all.
	eventType string
	// table creates the table.
	table string
	// handle writes a batch.
	handle batchHandler
	// fail is how the handler fails at a poison event.
	fail failure
	// want and got select (key text, value text). got reads the table. want reads "counted", the events that are neither parked
	// nor skipped. Its column "late" is true for events that were replayed after later events.
	want, got string
}

func (m readModel) concerns(eventType string) bool {
	return m.eventType == "" || m.eventType == eventType
}

func (m readModel) id() millrace.ProjectionID { return millrace.ProjectionID{Name: m.name} }

// projection returns the projection to register, with the fault. It never pauses because of many failures.
func (m readModel) projection(f *fault) millrace.Projection {
	p := millrace.Projection{
		Name:            m.name,
		Handler:         pgstore.Batch(f.failing(m)),
		Retry:           projection.RetryPolicy{Base: retryBase},
		OnFailure:       f.onError,
		MaxFailureShare: projection.NoLimit,
		MaxParked:       projection.NoLimit,
	}
	if m.eventType != "" {
		p.Types = []string{m.eventType}
	}
	return p
}

// concerned returns the read models that handle events of a type.
func concerned(eventType string) []readModel {
	return slices.DeleteFunc(slices.Clone(readModels), func(m readModel) bool { return !m.concerns(eventType) })
}

// readModels are the four projections. Each handler writes a batch with one statement, which is at least ten times faster than a
// statement for each event.
var readModels = []readModel{
	{
		name:   "events_by_type",
		table:  `create table demo.events_by_type (event_type text collate "C" primary key, n bigint not null)`,
		handle: countTypes,
		fail:   failNamed,
		want:   `select type, count(*)::text from counted group by type`,
		got:    `select event_type, n::text from demo.events_by_type`,
	},
	{
		name:   "events_by_role",
		table:  `create table demo.events_by_role (role text collate "C" primary key, n bigint not null)`,
		handle: countRoles,
		fail:   failUnnamed,
		want:   `select coalesce(body ->> 'role', '(none)'), count(*)::text from counted group by 1`,
		got:    `select role, n::text from demo.events_by_role`,
	},
	{
		name:   "streams",
		table:  `create table demo.streams (stream text collate "C" primary key, n bigint not null, last_type text collate "C" not null)`,
		handle: followStreams,
		fail:   failByPanic,
		want: `select stream_id, count(*) || ', ' || (array_agg(type order by late desc, stream_version desc))[1]
		         from counted group by stream_id`,
		got: `select stream, n || ', ' || last_type from demo.streams`,
	},
	{
		name:      "payments",
		eventType: paid,
		table: `create table demo.payments (id integer primary key, total numeric not null, n bigint not null);
		        insert into demo.payments values (1, 0, 0)`,
		handle: sumPayments,
		fail:   failBySQL,
		want: `select '1', coalesce(sum((body ->> 'amount')::numeric), 0) || ', ' || count(*)
		         from counted where type = 'Payment Handled'`,
		got: `select id::text, total || ', ' || n from demo.payments`,
	},
}

// countTypes counts in memory and adds the counts.
func countTypes(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	counts := make(map[string]int64)
	for _, e := range events {
		counts[e.Type]++
	}
	types, ns := make([]string, 0, len(counts)), make([]int64, 0, len(counts))
	for eventType, n := range counts {
		types, ns = append(types, eventType), append(ns, n)
	}
	_, err := tx.Exec(ctx, `
		insert into demo.events_by_type as t (event_type, n)
		select * from unnest($1::text[], $2::bigint[])
		on conflict (event_type) do update set n = t.n + excluded.n`, types, ns)
	return err
}

// countRoles reads the bodies in the database. A role that is missing or null counts as "(none)".
func countRoles(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	_, err := tx.Exec(ctx, `
		insert into demo.events_by_role as t (role, n)
		select coalesce(body::jsonb ->> 'role', '(none)'), count(*) from unnest($1::text[]) as body group by 1
		on conflict (role) do update set n = t.n + excluded.n`, bodies(events))
	return err
}

// followStreams relies on the order: the last event of a stream in a batch is its latest.
func followStreams(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	at := make(map[string]int)
	var streams, lastTypes []string
	var ns []int64
	for _, e := range events {
		i, known := at[e.Stream]
		if !known {
			i = len(streams)
			at[e.Stream] = i
			streams, lastTypes, ns = append(streams, e.Stream), append(lastTypes, ""), append(ns, 0)
		}
		lastTypes[i] = e.Type
		ns[i]++
	}
	_, err := tx.Exec(ctx, `
		insert into demo.streams as s (stream, n, last_type)
		select * from unnest($1::text[], $2::bigint[], $3::text[])
		on conflict (stream) do update set n = s.n + excluded.n, last_type = excluded.last_type`, streams, ns, lastTypes)
	return err
}

// sumPayments adds up the exact decimals of the database. An event without an amount adds nothing to the total.
func sumPayments(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	_, err := tx.Exec(ctx, `
		update demo.payments p set total = p.total + batch.total, n = p.n + batch.n
		  from (select coalesce(sum((body::jsonb ->> 'amount')::numeric), 0) as total, count(*) as n
		          from unnest($1::text[]) as body) as batch
		 where p.id = 1`, bodies(events))
	return err
}

func bodies(events []event.Envelope) []string {
	texts := make([]string, len(events))
	for i, e := range events {
		texts[i] = string(e.Body)
	}
	return texts
}
