-- Ends open replays that did not crash the process, before release.sql releases their leases. ?1 is a JSON array with a
-- list for each lease that the node ?2 holds: lease, epoch, dead letter. Indexes: primary keys. Locks: the file has one
-- writer.
update millrace_dead_letters
set open_replays = open_replays - 1, state = case when open_replays = 1 then 'parked' else state end,
    last_command = case when open_replays = 1 then 0 else last_command end
from (select l.id, json_extract(value, '$[2]') as dead_letter
      from json_each(?1) cross join millrace_leases l on l.id = json_extract(value, '$[0]') and l.epoch = json_extract(value, '$[1]') and l.owner = ?2) r
where millrace_dead_letters.id = r.dead_letter and projection = r.id and millrace_dead_letters.state = 'replaying'
