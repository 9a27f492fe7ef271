-- Locks and returns the partitions of the projections $2 of tenant $1: row and name; slots, and the handled ones in three lists;
-- checkpoint, epoch and crash_count; what is known of events; whether a living node holds the lease, whether a dead one does,
-- whether it delivers, and the operation that holds it, 0 for none. Locks, until the commit: the rows of projections and leases FOR
-- UPDATE, in order of their ids. So it waits for commits of batches and for inserts of commands, but not for handlers, which hold
-- neither. Where it waits for a claim, nodes is read again for the new owner; a join with nodes would keep the row of the old
-- one. Indexes: projections_tenant_name_partition_key, leases_pkey, nodes_pkey.
select p.id, p.name, p.slot_from, p.slot_to, p.passed_from, p.passed_to, p.passed_upto, l.checkpoint, l.epoch, l.crash_count,
       p.skipped, p.halted, p.failing_position, p.attempts, p.crash_position, p.crash_attempts,
       l.owner is not null and exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()),
       l.owner is not null and not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()),
       p.delivers, coalesce(p.held_by, 0)
  from {control}.projections p join {control}.leases l on l.id = p.id
 where p.tenant = $1::text and p.name = any($2::text[])
 order by p.id
   for update of p, l
