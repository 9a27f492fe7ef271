package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// retryBase is the delay before the first retry. It is short, so that an event is parked soon.
const retryBase = 20 * time.Millisecond

// readModel is a projection of the demo, which writes a table of the same name. Its statements work on any store: see
// dialect.
type readModel struct {
	// name is the name of the projection and of its table.
	name string
	// eventType is the only event type that the projection handles; empty means all.
	eventType string
	// handle writes a batch.
	handle batchHandler
	// fail is how the handler fails at a poison event.
	fail failure
	// want and got select key and value, both text. got reads the table. want computes what the table must contain. It
	// reads "counted", the events that are neither parked nor skipped. Its column "late" is true for events that were
	// replayed after later events.
	want, got string
}

func (m readModel) concerns(eventType string) bool {
	return m.eventType == "" || m.eventType == eventType
}

func (m readModel) id() millrace.ProjectionID { return millrace.ProjectionID{Name: m.name} }

// projection returns the projection to register in a runtime on d, with the fault. It never pauses because of many
// failures.
func (m readModel) projection(d database, f *fault) millrace.Projection {
	p := millrace.Projection{
		Name:            m.name,
		Handler:         d.batch(f.failing(m)),
		Retry:           projection.RetryPolicy{Base: retryBase},
		OnFailure:       f.onError,
		MaxFailureShare: projection.NoLimit,
		MaxParked:       projection.NoLimit,
		MaxBlocked:      projection.NoLimit,
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

// readModels are the four projections. Each handler adds up a batch in memory and writes it with one statement, which
// is at least ten times faster than a statement for each event.
var readModels = []readModel{
	{
		name:   "events_by_type",
		handle: countTypes,
		fail:   failNamed,
		want:   `select type, cast(count(*) as text) from counted group by type`,
		got:    `select event_type, cast(n as text) from {schema}.events_by_type`,
	},
	{
		name:   "events_by_role",
		handle: countRoles,
		fail:   failUnnamed,
		want:   `select role, cast(count(*) as text) from counted group by role`,
		got:    `select role, cast(n as text) from {schema}.events_by_role`,
	},
	{
		name:   "streams",
		handle: followStreams,
		fail:   failByPanic,
		want: `select distinct stream, count(*) over (partition by stream) || ', ' ||
		              first_value(type) over (partition by stream order by late desc, version desc)
		         from counted`,
		got: `select stream, n || ', ' || last_type from {schema}.streams`,
	},
	{
		name:      "payments",
		eventType: paid,
		handle:    sumPayments,
		fail:      failBySQL,
		want:      `select '1', coalesce(sum(cents), 0) || ', ' || count(*) from counted where type = 'Payment Handled'`,
		got:       `select cast(id as text), cents || ', ' || n from {schema}.payments`,
	},
}

// countTypes counts the events of each type.
func countTypes(ctx context.Context, tx transaction, events []event.Envelope) error {
	counts := make(map[string]int64)
	for _, e := range events {
		counts[e.Type]++
	}
	return tx.exec(ctx, `
		insert into {schema}.events_by_type as t (event_type, n)
		select value ->> 0, cast(value ->> 1 as bigint) from {elements $1} where true
		on conflict (event_type) do update set n = t.n + excluded.n`, asJSON(rowsOf(counts)))
}

// countRoles counts the events of each role.
func countRoles(ctx context.Context, tx transaction, events []event.Envelope) error {
	counts := make(map[string]int64)
	for _, e := range events {
		counts[roleOf(e.Body)]++
	}
	return tx.exec(ctx, `
		insert into {schema}.events_by_role as t (role, n)
		select value ->> 0, cast(value ->> 1 as bigint) from {elements $1} where true
		on conflict (role) do update set n = t.n + excluded.n`, asJSON(rowsOf(counts)))
}

// followStreams relies on the order: the last event of a stream in a batch is its latest.
func followStreams(ctx context.Context, tx transaction, events []event.Envelope) error {
	counts, last := make(map[string]int64), make(map[string]string)
	for _, e := range events {
		counts[e.Stream]++
		last[e.Stream] = e.Type
	}
	rows := rowsOf(counts)
	for i, row := range rows {
		rows[i] = append(row, last[row[0].(string)])
	}
	return tx.exec(ctx, `
		insert into {schema}.streams as t (stream, n, last_type)
		select value ->> 0, cast(value ->> 1 as bigint), value ->> 2 from {elements $1} where true
		on conflict (stream) do update set n = t.n + excluded.n, last_type = excluded.last_type`, asJSON(rows))
}

// sumPayments adds up integers of cents, so the total is exact in every store. SQLite has no decimals.
func sumPayments(ctx context.Context, tx transaction, events []event.Envelope) error {
	var total int64
	for _, e := range events {
		amount, err := amountOf(e.Body)
		if err != nil {
			return projection.At(e.Position, err)
		}
		total += amount
	}
	return tx.exec(ctx, `update {schema}.payments set cents = cents + $1, n = n + $2 where id = 1`, total, len(events))
}

// rowsOf returns the counts as rows for a statement, in the order of their keys.
func rowsOf(counts map[string]int64) [][]any {
	rows := make([][]any, 0, len(counts))
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		rows = append(rows, []any{key, counts[key]})
	}
	return rows
}
