-- Marks dead letter ?2 of projection ?1 resolved at ?3, after its event was applied, and returns its stream. Index: the
-- primary key. Lock: that of the file's writer.
update millrace_dead_letters set state = 'resolved', open_replays = 0, ended_at = ?3
where id = ?2 and projection = ?1 and state = 'replaying' returning stream_id
