-- Returns whether the table $1 of the control schema exists, which is created when it is needed. Indexes: those of the catalog. Locks
-- nothing.
select exists (select from pg_catalog.pg_type t join pg_catalog.pg_type e on e.typnamespace = t.typnamespace and e.typname = $1::text
                where t.oid = pg_typeof(null::{control}.tenants)::oid)
