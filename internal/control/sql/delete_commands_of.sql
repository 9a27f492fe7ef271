-- Deletes the commands of the projections $1. Index: commands_projection_id_ended_at_idx. Locks: the rows.
delete from {control}.commands where {projection} {in $1::integer[]}
