-- Tenants that Migrate has to look at: those that are older than $1, those that are too new, and those whose schema is
-- gone. It reads all of tenants and of the catalog's schemas, and needs no index. Locks nothing.
select t.tenant, t.schema_name from {control}.tenants t
 where t.version < $1 or t.version > $1 + 1 or not exists (select from pg_catalog.pg_namespace n where n.nspname = t.schema_name)
 order by t.tenant
