-- Inserts the tenants $1, sorted, with the schemas $2 and no migrations applied. It returns those that did not exist,
-- and notifies the nodes of them over channel $3 when the transaction commits. It waits for other transactions that
-- insert the same tenants. All insert in the same order, so they cannot deadlock. Locks: the migration lock is held,
-- at least SHARE, and the queue of notifications during the commit. Index: tenants_pkey.
with inserted as (
    insert into {control}.tenants (tenant, schema_name, version)
    select n.tenant, n.schema_name, 0 from unnest($1::text[], $2::text[]) with ordinality as n (tenant, schema_name, place)
     order by n.place
        on conflict do nothing
    returning tenant
)
select tenant, pg_notify($3, 'tenant ' || tenant) is null from inserted
