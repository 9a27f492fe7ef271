-- Locks and returns the rows of the projections with the names $2 in the tenants $1, both in pairs. alive reports whether a
-- living node owns the lease, dead whether a node that is dead does. Locks, until the commit: the rows of projections and
-- leases FOR UPDATE. So it waits for commits of batches, but not for handlers, which hold neither. Where it waits for a claim,
-- nodes is read again for the new owner; a join with nodes would keep the row of the old one. Indexes:
-- projections_tenant_name_partition_key, leases_pkey, nodes_pkey.
select p.id, coalesce(l.owner::text, ''),
       l.owner is not null and exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()) as alive,
       l.owner is not null and not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()) as dead
  from unnest($1::text[], $2::text[]) as r (tenant, name)
  join {control}.projections p on p.tenant = r.tenant and p.name = r.name
  join {control}.leases l on l.id = p.id
 order by p.id
   for update of p, l
