-- Deletes the idempotency keys of the appends of tenant $1 that have appended events at the positions $2. It scans the keys, and reads
-- the events of each. "offset 0" keeps the planner from a join by stream, which compares each key of a stream with each of its events.
-- Indexes: tenants_pkey, that of events by stream and version, append_results_pkey. Locks: the rows.
with keys as materialized (
    select k.key
      from {control}.tenants t, {tenant}.append_keys k join {tenant}.append_results r on r.key = k.key
     where t.tenant = $1::text and exists (
           select from {tenant}.events e
            where e.stream_id = k.stream_id and e.stream_version between r.first_version and r.last_version
              and e.global_seq = any($2::bigint[]) offset 0)
), results as (
    delete from {tenant}.append_results where key in (select key from keys)
)
delete from {tenant}.append_keys where key in (select key from keys)
