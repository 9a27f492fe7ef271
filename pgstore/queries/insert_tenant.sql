-- Inserts a tenant with no migrations applied, and notifies the nodes over channel $3 when the transaction commits. $1
-- tenant, $2 schema. Locks: the migration lock is held, and the queue of notifications during the commit. Index:
-- tenants_pkey.
with inserted as (
    insert into {control}.tenants (tenant, schema_name, version) values ($1, $2, 0)
    returning tenant
)
select pg_notify($3, 'tenant ' || tenant) from inserted
