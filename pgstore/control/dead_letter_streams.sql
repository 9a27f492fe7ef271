-- Returns the dead letters of the partitions $1 with their streams. Index: dead_letters_projection_id_position_key. Locks nothing.
select d.id, d.stream_id from {control}.dead_letters d where d.projection_id = any($1::integer[])
