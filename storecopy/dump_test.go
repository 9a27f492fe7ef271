package storecopy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// expectedRows are what a tenant must have after a copy, by statements of their own. Texts that PostgreSQL refuses are
// replaced, checkpoints end at the last event, and dead owners are counted.
var expectedRows = map[string]string{
	"tenant":  `select json_array(name, state, paused) from millrace_tenants where name = ?1`,
	"streams": `select json_array(stream_id, version) from millrace_streams where tenant = {id} order by stream_id`,
	"keys":    `select json_array(key, stream_id, first_version, last_version, created_at) from millrace_append_keys where tenant = {id} order by key`,
	"aliases": `select json_array(name, stream_id, created_at) from millrace_aliases where tenant = {id} order by name`,
	"projections": `select json_array(p.id, name, partition, partitions, slot_from, slot_to,
			(select json_group_array(json_array(value ->> 0, value ->> 1, min(value ->> 2, {last}))) from json_each(passed)),
			token, desired_state, (select state <> 'active' or paused from millrace_tenants where id = tenant),
			failed_reason, failed_epoch, halted, skipped, parked, failing_position, attempts, crash_position, crash_attempts, crash_since,
			failing_since, last_error, last_error_at, missing_object, delivers, rebuild_since, rebuild_from, min(rebuild_to, {last}),
			epoch + (owner is not null), min(checkpoint, {last}), crash_count + (owner is not null), null, 1)
		from millrace_projections p join millrace_leases l on l.id = p.id where tenant = {id} order by p.id`,
	"retired projections": `select json_array(name, successor, reason, retired_at) from millrace_retired_projections where tenant = {id} order by name`,
	"dead letters": `select json_array(d.id, projection, position, stream_id, version, type, blocked_by_stream, state,
			error, stack,
			attempts, replays, open_replays, last_command, first_failed_at, last_failed_at, ended_at)
		from millrace_dead_letters d where projection in (select id from millrace_projections where tenant = {id}) order by d.id`,
	"parked streams": `select json_array(projection, stream_id, last_command) from millrace_parked_streams
		where projection in (select id from millrace_projections where tenant = {id}) order by projection, stream_id`,
	"commands": `select json_array(id, root, projection, kind, json(dead_letter_ids), stream_id, type, error, max_events, current_stream, after_position, done, failed,
			current_dead_letter, created_at, ended_at)
		from millrace_commands where projection in (select id from millrace_projections where tenant = {id}) order by id`,
}

// copiedRows are what a tenant has in PostgreSQL, in the same form.
var copiedRows = map[string]string{
	"tenant":  `select jsonb_build_array(tenant, state, paused::int)::text from millrace.tenants where tenant = $1 and copy is null`,
	"streams": `select jsonb_build_array(stream_id, version)::text from {schema}.streams where $1 <> '' order by stream_id`,
	"keys": `select jsonb_build_array(k.key, stream_id, first_version, last_version, (extract(epoch from created_at) * 1000000)::bigint)::text
		from {schema}.append_keys k full join {schema}.append_results r on r.key = k.key where $1 <> '' order by k.key`,
	"aliases": `select jsonb_build_array(name, stream_id, (extract(epoch from created_at) * 1000000)::bigint)::text
		from millrace.aliases where tenant = $1 order by name`,
	"projections": `select jsonb_build_array(p.id, name, partition, partitions, slot_from, slot_to,
			(select coalesce(jsonb_agg(jsonb_build_array(passed_from[i], passed_to[i], passed_upto[i]) order by i), '[]') from generate_series(1, cardinality(passed_from)) i),
			token, desired_state, suspended::int, failed_reason, failed_epoch, halted::int, skipped, parked, failing_position, attempts, crash_position,
			crash_attempts, (extract(epoch from crash_since) * 1000000)::bigint, (extract(epoch from failing_since) * 1000000)::bigint, last_error, (extract(epoch from last_error_at) * 1000000)::bigint, missing_object::int,
			delivers::int, (extract(epoch from rebuild_since) * 1000000)::bigint, rebuild_from, rebuild_to, epoch, checkpoint, crash_count, owner, (free_since is not null)::int)::text
		from millrace.projections p join millrace.leases l on l.id = p.id where tenant = $1 and asleep = suspended order by p.id`,
	"retired projections": `select jsonb_build_array(name, successor, reason, (extract(epoch from retired_at) * 1000000)::bigint)::text
		from millrace.retired_projections where tenant = $1 order by name`,
	"dead letters": `select jsonb_build_array(d.id, projection_id, position, stream_id, stream_version, d.type, blocked_by_stream::int, state, error, stack, d.attempts, replays,
			open_replays, last_command, (extract(epoch from first_failed_at) * 1000000)::bigint, (extract(epoch from last_failed_at) * 1000000)::bigint, (extract(epoch from ended_at) * 1000000)::bigint)::text
		from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id where tenant = $1 order by d.id`,
	"parked streams": `select jsonb_build_array(projection_id, stream_id, last_command)::text
		from millrace.parked_streams s join millrace.projections p on p.id = s.projection_id where tenant = $1 order by projection_id, stream_id`,
	"commands": `select jsonb_build_array(c.id, root, projection_id, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, after_position, done, failed,
			current_dead_letter, (extract(epoch from c.created_at) * 1000000)::bigint, (extract(epoch from ended_at) * 1000000)::bigint)::text
		from millrace.commands c join millrace.projections p on p.id = c.projection_id where tenant = $1 order by c.id`,
}

// expected returns what each tenant must have after a copy, without its events.
func expected(t testing.TB, source *sqlitestore.Store, tenant string) lines {
	t.Helper()
	all := make(lines)
	fill := replacer("{id}", `(select id from millrace_tenants where name = ?1)`, "{last}",
		`(select coalesce(max(position), 0) from millrace_events where tenant = (select id from millrace_tenants where name = ?1))`)
	for table, query := range expectedRows {
		rows, err := source.DB().QueryContext(testContext(t), fill(query), tenant)
		all[table] = same(t, collect(t, rows, err))
	}
	rows, err := source.DB().QueryContext(testContext(t), fill(`select json_array(position, slot, stream_id, version, type, body, headers, causation_id, correlation_id, created_at)
		from millrace_events where tenant = {id} order by position`), tenant)
	all["events"] = collect(t, rows, err)
	return all
}

// copied returns what each tenant has in PostgreSQL.
func copied(t testing.TB, target *pgstore.Store, tenant string, events []string) lines {
	t.Helper()
	all := make(lines)
	of := must(target.ForTenant(tenant))(t)
	fill := replacer("{schema}", quoted(of.EventsSchema()))
	for table, query := range copiedRows {
		all[table] = same(t, collectPG(t, target, fill(query), tenant))
	}
	// The server says whether the bodies and headers have the values of the texts in the file.
	all["events"] = collectPG(t, target, fill(`select case when to_jsonb(global_seq) = e -> 0 and to_jsonb(slot) = e -> 1 and to_jsonb(stream_id) = e -> 2
			and to_jsonb(stream_version) = e -> 3 and to_jsonb(type) = e -> 4 and body = (e ->> 5)::jsonb
			and headers is not distinct from (e ->> 6)::jsonb and causation_id is not distinct from e ->> 7 and correlation_id is not distinct from e ->> 8
			and created_at = timestamptz 'epoch' + (e ->> 9)::bigint * interval '1 microsecond' then e.t else row_to_json(x)::text end
		from {schema}.events x full join (select t, t::jsonb as e, n from unnest($1::text[]) with ordinality as u (t, n)) e on (e.e ->> 0)::bigint = x.global_seq
		order by coalesce(global_seq, (e ->> 0)::bigint)`), events)
	return all
}

// same writes JSON in one way. Of texts it changes what PostgreSQL refuses.
func same(t testing.TB, list []string) []string {
	t.Helper()
	for i, line := range list {
		var value any
		noError(t, json.Unmarshal([]byte(strings.ReplaceAll(line, `\u0000`, "\uFFFD")), &value))
		list[i] = fmt.Sprintf("%#v", value)
	}
	return list
}
