-- Deletes the idempotency keys of the appends of tenant $1 that have appended events at the positions $2. It scans the keys. Indexes:
-- tenants_pkey, events_pkey, append_results_pkey. Locks: the rows.
with erased as (
    select e.stream_id, e.stream_version from {control}.tenants t join {tenant}.events e on e.global_seq = any($2::bigint[]) where t.tenant = $1::text
), keys as materialized (
    select distinct k.key
      from erased e
      join {tenant}.append_keys k on k.stream_id = e.stream_id
      join {tenant}.append_results r on r.key = k.key and e.stream_version between r.first_version and r.last_version
), results as (
    delete from {tenant}.append_results where key in (select key from keys)
)
delete from {tenant}.append_keys where key in (select key from keys)
