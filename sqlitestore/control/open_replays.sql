-- Returns the open replays of the partitions ?1, a JSON array, with the slots of their partitions. Indexes: that of open
-- commands, and the primary key of projections. Locks nothing.
select c.id, coalesce(c.root, c.id), p.slot_from, p.slot_to, c.current_stream, coalesce(c.dead_letter_ids = '[]', 0)
from millrace_commands c join millrace_projections p on p.id = c.projection
where c.projection in (select value from json_each(?1)) and c.ended_at is null and c.kind = 'replay'
