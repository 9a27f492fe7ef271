-- Resolves the dead letters of the partition ?1 above the checkpoint ?2, since their events will be passed again, and
-- returns their streams. ?3 is the time. Index: that of parked dead letters. Lock: that of the file's writer.
update millrace_dead_letters set state = 'resolved', open_replays = 0, ended_at = ?3
where projection = ?1 and state in ('parked', 'replaying') and position > ?2
returning stream_id
