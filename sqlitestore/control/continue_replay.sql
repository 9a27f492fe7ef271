-- Inserts a row by which the replay ?1 continues in the partition ?2, with the filter and the limit of its open row ?3, at
-- the parked stream ?4, and for this stream only if ?5. Returns its id. Index: the primary key. Lock: that of the file's
-- writer.
insert into millrace_commands (root, projection, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, created_at)
select ?1, ?2, kind, case when ?5 then '[]' else dead_letter_ids end, stream_id, type, error, max_events, ?4, created_at
from millrace_commands where id = ?3
returning id
