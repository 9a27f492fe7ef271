-- Reserves ids of the table $1 for rows whose ids are from $2 to $3, and returns what must be added to these: 0 if no such id was drawn yet.
-- The tables of lock_ids.sql are locked. Indexes: those of the catalog. Locks nothing more.
with s as materialized (
    select pg_get_serial_sequence(format('%I.%I', n.nspname, $1::text), 'id')::regclass as id
      from pg_catalog.pg_type t join pg_catalog.pg_namespace n on n.oid = t.typnamespace
     where t.oid = pg_typeof(null::{control}.tenants)::oid
), added as materialized (
    select s.id, greatest(0, coalesce(pg_sequence_last_value(s.id), 0) - $2::bigint + 1) as n from s
)
select case when setval(id, n + $3::bigint) > 0 then n end from added
