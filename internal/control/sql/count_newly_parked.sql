-- Counts those of the positions $2 that are not parked yet as parked for projection $1. Each is looked up. "coalesce" keeps the
-- planner from the partial indexes: of a table that was nearly empty when it was analyzed, it would read all parked events of the
-- projection. Indexes: projections_pkey, dead_letters_projection_id_position_key. Locks: the row of projections FOR NO KEY UPDATE
-- until the commit.
update {control}.projections
   set parked = parked + (select count(*) from {rows $2::bigint[]}
                           where (select count(*) from {control}.dead_letters d
                                   where d.{projection} = $1::integer and d.position = list.value
                                     and coalesce(d.state in ('parked', 'replaying'), false)) = 0)
 where id = $1::integer
