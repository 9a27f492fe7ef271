-- Deletes the idempotency keys of the appends of tenant $1 that have appended events at the positions $2. It scans the keys, and reads
-- the events of those of the same streams. "offset 0" keeps the planner from a join by stream, which compares each key of a stream with
-- each of its events. Indexes: tenants_pkey, events_pkey, that of events by stream and version, append_results_pkey. Locks: the rows.
with streams as materialized (
    select distinct e.stream_id from {control}.tenants t join {tenant}.events e on e.global_seq = any($2::bigint[]) where t.tenant = $1::text
), near as materialized (
    select k.key, k.stream_id, r.first_version, r.last_version
      from {tenant}.append_keys k join {tenant}.append_results r on r.key = k.key
     where k.stream_id in (select stream_id from streams)
), keys as materialized (
    select n.key from near n
     where exists (select from {tenant}.events e
                    where e.stream_id = n.stream_id and e.stream_version between n.first_version and n.last_version
                      and e.global_seq = any($2::bigint[]) offset 0)
), results as (
    delete from {tenant}.append_results where key in (select key from keys)
)
delete from {tenant}.append_keys where key in (select key from keys)
