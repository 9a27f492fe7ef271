-- Inserts the tenants $1, sorted, with the schemas $2 and no migrations applied, and returns those that did not exist. It
-- waits for other transactions that insert the same tenants; because all insert in one order, none waits for another
-- in a circle. Lock: the migration lock is held, at least SHARE. Index: tenants_pkey.
insert into {control}.tenants (tenant, schema_name, version)
select n.tenant, n.schema_name, 0 from unnest($1::text[], $2::text[]) with ordinality as n (tenant, schema_name, place)
 order by n.place
    on conflict do nothing
returning tenant
