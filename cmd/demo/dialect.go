package main

import "strings"

// dialect has the parts of SQL that differ between the stores. Everything else is the same for both.
type dialect struct {
	// schema is the schema of the read models.
	schema string
	// tables creates them.
	tables string
	// events selects the events, with the columns position, stream, version, type, role and cents. A role that is
	// missing or not a text is "(none)". cents is null for events that are not payments.
	events string
	// elements is the function that returns the elements of a JSON array as rows, in the column value. Its argument is
	// $1 or $2.
	elements func(argument string) string
}

// sql returns a statement in the dialect. The statement may use {schema}, {events}, {elements $1} and {elements $2}.
func (d *dialect) sql(statement string) string {
	return strings.NewReplacer("{schema}", d.schema, "{events}", d.events,
		"{elements $1}", d.elements("$1"), "{elements $2}", d.elements("$2")).Replace(statement)
}

// createTables returns the statements that create the tables.
func (d *dialect) createTables() string { return d.sql(d.tables) }

// inPostgres is the dialect of PostgreSQL. The events are in the given table.
func inPostgres(events string) *dialect {
	return &dialect{
		schema: readSchema,
		tables: `
			create table {schema}.events_by_type (event_type text collate "C" primary key, n bigint not null);
			create table {schema}.events_by_role (role text collate "C" primary key, n bigint not null);
			create table {schema}.streams (stream text collate "C" primary key, n bigint not null, last_type text collate "C" not null);
			create table {schema}.payments (id bigint primary key, cents bigint not null, n bigint not null);
			insert into {schema}.payments values (1, 0, 0)`,
		events: `
			select global_seq as position, stream_id as stream, stream_version as version, type,
			       case jsonb_typeof(body -> 'role') when 'string' then body ->> 'role' else '(none)' end as role,
			       case when type = 'Payment Handled' then ((body ->> 'amount')::numeric * 100)::bigint end as cents
			  from ` + events,
		elements: func(argument string) string { return "jsonb_array_elements(" + argument + "::jsonb)" },
	}
}

// inSQLite is the dialect of SQLite. The product of an amount and 100 is a floating-point number there. Rounding it
// gives the exact number of cents, because amounts have at most mostCents.
var inSQLite = &dialect{
	schema: "main",
	tables: `
		create table {schema}.events_by_type (event_type text primary key, n integer not null) strict;
		create table {schema}.events_by_role (role text primary key, n integer not null) strict;
		create table {schema}.streams (stream text primary key, n integer not null, last_type text not null) strict;
		create table {schema}.payments (id integer primary key, cents integer not null, n integer not null) strict;
		insert into {schema}.payments values (1, 0, 0)`,
	events: `
		select position, stream_id as stream, version, type,
		       iif(json_type(body, '$.role') = 'text', body ->> 'role', '(none)') as role,
		       iif(type = 'Payment Handled', cast(round((body ->> 'amount') * 100) as integer), null) as cents
		  from millrace_events`,
	elements: func(argument string) string { return "json_each(" + argument + ")" },
}
