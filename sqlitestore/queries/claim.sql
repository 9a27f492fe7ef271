-- Takes those of the leases ?2, a JSON array, that have no owner or a dead one, and raises their epochs. For the node
-- ?1 that owns the file, all leases but its own count as such. Another node gets no leases. Indexes: primary keys.
-- Locks: the file has one writer.
update millrace_leases
set owner = ?1, epoch = epoch + 1, free_since = null, crash_count = crash_count + (owner is not null)
where id in (select value from json_each(?2)) and owner is not ?1
  and exists (select 1 from millrace_nodes n where n.id = ?1)
  and exists (select 1 from millrace_projections p where p.id = millrace_leases.id and p.desired_state = 'run' and not p.suspended)
returning id
