-- Resolves the dead letters of the partitions ?1 (JSON) above the checkpoint ?2, since their events will be passed again. Index: that
-- of parked events. Lock: that of the file's writer.
update millrace_dead_letters set state = 'resolved', open_replays = 0, ended_at = :now
where projection in (select value from json_each(?1)) and state in ('parked', 'replaying') and position > ?2
