-- Returns, for each of the tenants $1, the highest position that one of its projections has handled. It is settled.
-- Indexes: projections_tenant_name_partition_key, leases_pkey. Locks nothing.
select p.tenant, max(greatest(l.checkpoint, (select max(u.position) from unnest(p.passed_upto) as u(position))))
  from {control}.projections p join {control}.leases l on l.id = p.id
 where p.tenant = any($1::text[])
 group by p.tenant
