-- Deletes the dead letters of the projections $1. Index: dead_letters_projection_id_position_key. Locks: the rows.
delete from {control}.dead_letters where {projection} {in $1::integer[]}
