-- The next tenants after $3 that Migrate has to look at: those that are older than $1, those that are too new, those that had
-- fewer than $2 steps of the user's setup, and those whose schema is gone. Indexes: tenants_pkey, that of the catalog. Locks
-- nothing.
select t.tenant, t.schema_name from {control}.tenants t
 where t.tenant > $3
   and (t.version < $1 or t.version > $1 + 1 or t.setup < $2
        or not exists (select from pg_catalog.pg_namespace n where n.nspname = t.schema_name))
 order by t.tenant limit 1000
