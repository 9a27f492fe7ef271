-- dead_letters.sql for the dead letters ?4, in both orders: ?11 is 1, or -1 for the newest first. It scans the numbers, reads
-- these dead letters alone, and sorts them. Indexes: the primary keys. Locks nothing.
select p.partition, d.id, d.position, d.stream_id, d.version, d.type, d.blocked_by_stream, d.state, d.error, d.stack, d.attempts, d.replays,
       d.first_failed_at, d.last_failed_at, d.ended_at, d.open_replays < 0
from (select distinct value as id from json_each(?4)) i cross join millrace_dead_letters d on d.id = i.id
cross join millrace_projections p on p.id = d.projection
cross join millrace_tenants t on t.id = p.tenant
where t.name = ?1 and p.name = ?2 and (?3 = 0 or p.partition = ?3) and d.state in (select value from json_each(?8))
and (?5 is null or d.stream_id = ?5) and (?6 is null or d.type = ?6) and (?7 is null or instr(d.error, ?7) > 0)
and d.position * ?11 > ?9 * ?11
order by d.position * ?11 limit ?10
