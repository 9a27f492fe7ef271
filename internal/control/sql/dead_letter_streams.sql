-- Returns the dead letters of the partitions $1 with their streams. Index: dead_letters_projection_id_position_key. Locks nothing.
select id, stream_id from {control}.dead_letters where {projection} {in $1::integer[]}
