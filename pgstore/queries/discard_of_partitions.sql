-- Runs the open discards of the partitions $1, whose leases the caller has locked. Indexes:
-- commands_projection_id_id_idx, and those of the function. Locks: those of the function.
select {control}.discard(c.projection_id, c.id)
  from (select x.projection_id, x.id from {control}.commands x
         where x.projection_id = any($1::integer[]) and x.ended_at is null and x.kind = 'discard' order by x.id) c
