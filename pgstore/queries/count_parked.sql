-- Counts the parked events of the partitions $1 anew. Indexes: projections_pkey, dead_letters_projection_id_position_idx.
-- Locks: the rows of projections FOR NO KEY UPDATE until the commit.
update {control}.projections p
   set parked = (select count(*) from {control}.dead_letters d where d.projection_id = p.id and d.state in ('parked', 'replaying'))
 where p.id = any($1::integer[])
