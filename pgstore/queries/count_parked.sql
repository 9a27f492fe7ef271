-- Counts the parked events of the new partitions $1. It counts all in one pass: the planner has no statistics about
-- new partitions. Indexes: dead_letters_projection_id_position_idx, projections_pkey. Locks: the rows of projections
-- FOR NO KEY UPDATE until the commit.
update {control}.projections p set parked = c.parked
  from (select d.projection_id, count(*) as parked from {control}.dead_letters d
         where d.projection_id = any($1::integer[]) and d.state in ('parked', 'replaying') group by d.projection_id) c
 where p.id = c.projection_id and p.id = any($1::integer[])
