-- Moves checkpoints over events that do not concern their projections, for all projections of a node at once, each
-- under its fence. $1 to $5 are arrays: rows, epochs, incarnations, old and new checkpoints. $6 is the node. If old
-- and new are equal, the owner is idle, and crash_count becomes 0. Index: leases_pkey, as in fence_functions.sql.
-- Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.leases l
   set checkpoint = r.new, crash_count = case when r.new = r.old then 0 else l.crash_count end
  from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) as r(id, epoch, seen, old, new)
 where l.id = r.id and coalesce(l.owner = $6::uuid, false) and l.epoch = r.epoch and l.checkpoint = r.old
   and r.seen = (select {control}.incarnation())
returning l.id
