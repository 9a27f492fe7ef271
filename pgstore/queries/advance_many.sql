-- Moves checkpoints over events that do not concern their projections, for all of a node's projections at once, each
-- under its fence. One that is moved to where it is shows that its owner is at rest, and will not have died of an event.
-- Index: leases_pkey. Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.leases l
   set checkpoint = r.new, crash_count = case when r.new = r.old then 0 else l.crash_count end
  from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) as r(id, epoch, seen, old, new)
 where l.id = r.id and l.owner = $6::uuid and l.epoch = r.epoch and l.checkpoint = r.old
   and r.seen = (select {control}.incarnation())
returning l.id
