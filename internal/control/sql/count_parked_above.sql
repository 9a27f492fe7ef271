-- Counts the parked events of the partitions $1 above the position $2. Index: dead_letters_projection_id_position_idx. Locks nothing.
select count(*) from {control}.dead_letters
 where {projection} {in $1::integer[]} and state in ('parked', 'replaying') and position > $2::bigint
