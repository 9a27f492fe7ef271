-- Returns the open replays of the partitions $1, with the slots of their partitions. Locks nothing. Indexes:
-- commands_projection_id_id_idx, projections_pkey.
select c.id, coalesce(c.root, c.id), p.slot_from, p.slot_to, c.current_stream, coalesce(cardinality(c.dead_letter_ids), 1) = 0
  from {control}.commands c join {control}.projections p on p.id = c.projection_id
 where c.projection_id = any($1::integer[]) and c.ended_at is null and c.kind = 'replay'
