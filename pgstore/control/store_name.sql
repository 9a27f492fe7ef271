-- Returns the name of the store: the database, the schema, and when the schema was made. Index: schema_versions_pkey. It also scans the
-- indexes of the catalog. Locks nothing.
select format('database "%s", schema "%s", made at %s', current_database(), n.nspname, to_char(v.applied_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'))
  from {control}.schema_versions v
  join pg_catalog.pg_type t on t.oid = pg_typeof(null::{control}.tenants)::oid
  join pg_catalog.pg_namespace n on n.oid = t.typnamespace
 where v.version = 1
