-- Returns an open command. Its limit excludes the dead letters that the other partitions have tried. A replay in
-- progress there counts as tried. ?1 command. Indexes: those of commands by id and root. Locks nothing; the caller has
-- begun a transaction that writes.
select c.dead_letter_ids, c.stream_id, c.type, c.error,
       c.max_events - (select coalesce(sum(x.done + x.failed + (x.ended_at is null and x.current_dead_letter is not null)), 0)
                         from millrace_commands x where x.id <> c.id and (x.id = c.root or x.root = coalesce(c.root, c.id))),
       c.current_stream, c.after_position, c.done, c.failed, c.current_dead_letter
from millrace_commands c where c.id = ?1 and c.ended_at is null
