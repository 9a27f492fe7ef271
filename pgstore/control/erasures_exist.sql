-- Returns whether the table of erasures exists. Indexes: those of the catalog. Locks nothing.
select exists (select from pg_catalog.pg_type t join pg_catalog.pg_type e on e.typnamespace = t.typnamespace and e.typname = 'erasures'
                where t.oid = pg_typeof(null::{control}.tenants)::oid)
