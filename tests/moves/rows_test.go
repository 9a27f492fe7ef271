package moves_test

// rowsOfFiles are the rows of a tenant in a file, by statements of their own.
var rowsOfFiles = map[string]string{
	"tenant": `select json_array(paused, head) from millrace_tenants where name = ?1`,
	"events": `select json_array(position, slot, stream_id, version, type, json(body), json(headers), causation_id, correlation_id, created_at)
		from millrace_events where tenant = {id} order by position`,
	"streams": `select json_array(stream_id, version) from millrace_streams where tenant = {id} order by stream_id`,
	"keys":    `select json_array(key, stream_id, first_version, last_version, created_at) from millrace_append_keys where tenant = {id} order by key`,
	"aliases": `select json_array(name, stream_id, created_at) from millrace_aliases where tenant = {id} order by name`,
	"projections": `select json_array(name, partition, partitions, slot_from, slot_to, json(passed), token, desired_state,
			failed_reason, failed_epoch, halted, skipped, parked, failing_position, attempts, crash_position, crash_attempts, crash_since,
			failing_since, last_error, last_error_at, next_attempt_at, missing_object, delivers, rebuild_since, rebuild_from, rebuild_to,
			epoch, checkpoint, crash_count, owner, free_since is not null, held_by)
		from millrace_projections p join millrace_leases l on l.id = p.id where tenant = {id} order by name, partition`,
	"retired names": `select json_array(name, successor, reason, retired_at) from millrace_retired_projections where tenant = {id} order by name`,
	"dead letters": `select json_array(d.id, p.name, p.partition, position, stream_id, version, type, blocked_by_stream, state, error, stack, d.attempts, replays, open_replays,
			last_command, first_failed_at, last_failed_at, ended_at)
		from millrace_dead_letters d join millrace_projections p on p.id = d.projection where tenant = {id} order by d.id`,
	"parked streams": `select json_array(p.name, p.partition, stream_id, last_command)
		from millrace_parked_streams s join millrace_projections p on p.id = s.projection where tenant = {id} order by p.name, p.partition, stream_id`,
	"commands": `select json_array(c.id, root, p.name, p.partition, kind, json(dead_letter_ids), stream_id, type, error, max_events, current_stream, after_position, done, failed,
			current_dead_letter, created_at, ended_at)
		from millrace_commands c join millrace_projections p on p.id = c.projection where tenant = {id} order by c.id`,
	"erasures": `select json_array(stream_id, json(positions), reason, pauses, requested_at, ended_at, events, json(types), json(applied), json(delivered))
		from millrace_erasures where tenant = {id} order by id`,
}

// rowsOfDatabases are the same rows in PostgreSQL, in the same form.
var rowsOfDatabases = map[string]string{
	"tenant": `select jsonb_build_array(paused::int, (select last_value from {tenant}.events_global_seq_seq where is_called))::text from {control}.tenants where tenant = $1 and copy is null`,
	"events": `select jsonb_build_array(global_seq, slot, stream_id, stream_version, type, body, headers, causation_id, correlation_id,
			(extract(epoch from created_at) * 1000000)::bigint)::text from {tenant}.events where $1 <> '' order by global_seq`,
	"streams": `select jsonb_build_array(stream_id, version)::text from {tenant}.streams where $1 <> '' order by stream_id`,
	"keys": `select jsonb_build_array(k.key, stream_id, first_version, last_version, (extract(epoch from created_at) * 1000000)::bigint)::text
		from {tenant}.append_keys k full join {tenant}.append_results r on r.key = k.key where $1 <> '' order by k.key`,
	"aliases": `select jsonb_build_array(name, stream_id, (extract(epoch from created_at) * 1000000)::bigint)::text
		from {control}.aliases where tenant = $1 order by name`,
	"projections": `select jsonb_build_array(name, partition, partitions, slot_from, slot_to,
			(select coalesce(jsonb_agg(jsonb_build_array(passed_from[i], passed_to[i], passed_upto[i]) order by i), '[]') from generate_series(1, cardinality(passed_from)) i),
			token, desired_state, failed_reason, failed_epoch, halted::int, skipped, parked, failing_position, attempts, crash_position,
			crash_attempts, (extract(epoch from crash_since) * 1000000)::bigint, (extract(epoch from failing_since) * 1000000)::bigint, last_error,
			(extract(epoch from last_error_at) * 1000000)::bigint, (extract(epoch from next_attempt_at) * 1000000)::bigint, missing_object::int,
			delivers::int, (extract(epoch from rebuild_since) * 1000000)::bigint, rebuild_from, rebuild_to, epoch, checkpoint, crash_count, owner,
			(free_since is not null)::int, held_by)::text
		from {control}.projections p join {control}.leases l on l.id = p.id where tenant = $1 and asleep = suspended order by name, partition`,
	"retired names": `select jsonb_build_array(name, successor, reason, (extract(epoch from retired_at) * 1000000)::bigint)::text
		from {control}.retired_projections where tenant = $1 order by name`,
	"dead letters": `select jsonb_build_array(d.id, p.name, p.partition, position, stream_id, stream_version, d.type, blocked_by_stream::int, state, error, stack, d.attempts, replays,
			open_replays, last_command, (extract(epoch from first_failed_at) * 1000000)::bigint, (extract(epoch from last_failed_at) * 1000000)::bigint, (extract(epoch from ended_at) * 1000000)::bigint)::text
		from {control}.dead_letters d join {control}.projections p on p.id = d.projection_id where tenant = $1 order by d.id`,
	"parked streams": `select jsonb_build_array(p.name, p.partition, stream_id, last_command)::text
		from {control}.parked_streams s join {control}.projections p on p.id = s.projection_id where tenant = $1 order by p.name, p.partition, stream_id`,
	"commands": `select jsonb_build_array(c.id, root, p.name, p.partition, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, after_position, done, failed,
			current_dead_letter, (extract(epoch from c.created_at) * 1000000)::bigint, (extract(epoch from ended_at) * 1000000)::bigint)::text
		from {control}.commands c join {control}.projections p on p.id = c.projection_id where tenant = $1 order by c.id`,
	"erasures": `select jsonb_build_array(stream_id, positions, reason, pauses::int, (extract(epoch from requested_at) * 1000000)::bigint, (extract(epoch from ended_at) * 1000000)::bigint, events, types,
			applied, delivered)::text
		from {control}.erasures where tenant = $1 order by id`,
}
