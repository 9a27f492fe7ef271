-- Counts the parked events of the partitions $1 anew. It counts all in one pass: the planner has no statistics about new partitions.
-- Indexes: dead_letters_projection_id_position_idx, projections_pkey. Locks: the rows of projections FOR NO KEY UPDATE until the
-- commit.
update {control}.projections p set parked = coalesce(c.parked, 0)
  from unnest($1::integer[]) as r (id)
  left join (select d.projection_id, count(*) as parked from {control}.dead_letters d
              where d.projection_id = any($1::integer[]) and d.state in ('parked', 'replaying') group by d.projection_id) c on c.projection_id = r.id
 where p.id = r.id
