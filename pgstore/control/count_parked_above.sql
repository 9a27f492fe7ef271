-- Counts the parked events of the partitions $1 above the position $2. Index: dead_letters_projection_id_position_idx. Locks nothing.
select count(*) from {control}.dead_letters d
 where d.projection_id = any($1::integer[]) and d.state in ('parked', 'replaying') and d.position > $2::bigint
