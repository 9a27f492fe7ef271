-- Locks and returns the partitions of the projections $2 of tenant $1: row, name, checkpoint, epoch, whether a living node holds
-- the lease, whether a dead one does, whether it delivers, and the operation that holds it, 0 for none. Locks, until the commit: the
-- rows of projections and leases FOR UPDATE, in order of their ids. So it waits for commits of batches, but not for handlers.
-- Indexes: projections_tenant_name_partition_key, leases_pkey, nodes_pkey.
select p.id, p.name, l.checkpoint, l.epoch, l.owner is not null and n.alive, l.owner is not null and not n.alive, p.delivers, coalesce(p.held_by, 0)
  from {control}.projections p join {control}.leases l on l.id = p.id
 cross join lateral (select exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()) as alive) n
 where p.tenant = $1::text and p.name = any($2::text[])
 order by p.id
   for update of p, l
