-- Inserts the missing rows of projections and leases. $1 tenants, $2 names. It runs when a node starts. Index:
-- projections_tenant_name_partition_key, or a scan of projections where that is cheaper. Locks: the new rows only.
with missing as (
    select t.tenant, n.name
      from unnest($1::text[]) as t(tenant) cross join unnest($2::text[]) as n(name)
     where not exists (select from {control}.projections p
                        where p.tenant = t.tenant and p.name = n.name and p.partition = 0)
), inserted as (
    insert into {control}.projections (tenant, name) select tenant, name from missing
    on conflict do nothing
    returning id
)
insert into {control}.leases (id) select id from inserted
