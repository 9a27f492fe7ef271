-- Subtracts attempts that were counted in advance and did not crash the process, before release.sql releases their leases.
-- ?1 is a JSON array with a list for each lease that the node ?2 holds: lease, epoch, position, attempt. Indexes: primary
-- keys. Locks: the file has one writer.
update millrace_projections set crash_attempts = crash_attempts - 1
from (select l.id, json_extract(value, '$[2]') as position, json_extract(value, '$[3]') as attempt
      from json_each(?1) cross join millrace_leases l on l.id = json_extract(value, '$[0]') and l.epoch = json_extract(value, '$[1]') and l.owner = ?2) r
where millrace_projections.id = r.id and r.attempt > 0 and crash_position = r.position and crash_attempts = r.attempt
