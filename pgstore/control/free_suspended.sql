-- Locks the leases of tenant $1, which is locked, except those of living nodes, and so waits for claims in progress: a claim that
-- begins later sees that the projection is suspended. Then it releases the leases of dead owners and raises their epochs, so that
-- the owners cannot commit if they are alive after all, and returns their rows. Indexes: projections_tenant_name_partition_key,
-- leases_pkey, nodes_pkey. Locks: the rows of leases that no living node holds FOR NO KEY UPDATE until the commit.
with held as materialized (
    select l.id, l.owner from {control}.leases l
     where l.id in (select p.id from {control}.projections p where p.tenant = $1::text and p.tenant_suspended)
       and not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp())
     order by l.id
       for no key update of l
)
update {control}.leases l set owner = null, free_since = clock_timestamp(), epoch = l.epoch + 1, crash_count = l.crash_count + 1
  from held h
 where l.id = h.id and (select count(*) from held) > 0 and h.owner is not null
   and not exists (select from {control}.nodes n where n.id = h.owner and n.expires_at > clock_timestamp())
returning l.id
