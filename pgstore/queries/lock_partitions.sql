-- Locks and returns the partitions of projection $2 of tenant $1. dead reports whether the owner's heartbeat has
-- expired. Locks, until the commit: the rows of projections and leases FOR UPDATE. So it waits for commits of batches
-- and for inserts of commands, but not for handlers, which hold neither. Indexes:
-- projections_tenant_name_partition_key, leases_pkey, nodes_pkey.
select p.id, p.slot_from, p.slot_to, p.passed_from, p.passed_to, p.passed_upto, l.checkpoint, l.crash_count, p.skipped, p.halted,
       p.failing_position, p.attempts, p.crash_position, p.crash_attempts, l.owner is not null,
       l.owner is not null and not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()) as dead,
       transaction_timestamp()
  from {control}.projections p join {control}.leases l on l.id = p.id
 where p.tenant = $1::text and p.name = $2::text
 order by p.id
   for update of p, l
