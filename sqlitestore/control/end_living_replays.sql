-- Ends the attempts at dead letters of the partitions ?1, a JSON array, whose owner is alive. The attempts are not
-- counted: see release.sql. Index: that of parked events. Lock: that of the file's writer.
update millrace_dead_letters
set open_replays = open_replays - 1,
    state = case when open_replays = 1 then 'parked' else state end,
    last_command = case when open_replays = 1 then 0 else last_command end
where projection in (select value from json_each(?1)) and state in ('parked', 'replaying') and state = 'replaying' and open_replays > 0
