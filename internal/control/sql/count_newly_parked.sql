-- Counts those of the positions $2 that are not parked yet as parked for projection $1. Indexes: projections_pkey,
-- dead_letters_projection_id_position_key. Locks: the row of projections FOR NO KEY UPDATE until the commit.
update {control}.projections
   set parked = parked + (select count(*) from {rows $2::bigint[]})
       - (select count(*) from {control}.dead_letters d
           where d.{projection} = $1::integer and d.position {in $2::bigint[]} and d.state in ('parked', 'replaying'))
 where id = $1::integer
