-- Deletes the dead letters of the partitions $1 above the position $2, whose events are gone: other events get their positions.
-- Index: dead_letters_projection_id_position_key. Locks: the rows.
delete from {control}.dead_letters where {projection} {in $1::integer[]} and position > $2::bigint
