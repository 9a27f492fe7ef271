-- dead_letters.sql in the other order: dead letters before position ?9, the newest first. It sorts the pages of the
-- partitions. Indexes: those of dead_letters.sql. Locks nothing.
select p.partition, d.id, d.position, d.stream_id, d.version, d.type, d.blocked_by_stream, d.state, d.error, d.stack, d.attempts, d.replays,
       d.first_failed_at, d.last_failed_at, d.ended_at, d.open_replays < 0
from millrace_tenants t join millrace_projections p on p.tenant = t.id
join millrace_dead_letters d on d.id in (
    select x.id from millrace_dead_letters x
    where x.projection = p.id and x.position < ?9 and x.state in (select value from json_each(?8))
    and (?4 is null or x.id in (select value from json_each(?4))) and (?5 is null or x.stream_id = ?5)
    and (?6 is null or x.type = ?6) and (?7 is null or instr(x.error, ?7) > 0)
    order by x.position desc limit ?10)
where t.name = ?1 and p.name = ?2 and (?3 = 0 or p.partition = ?3)
order by d.position desc limit ?10
