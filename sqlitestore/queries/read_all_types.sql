-- read_all.sql for the types in ?4, a JSON array. Indexes: as there. Locks nothing.
select e.position, e.stream_id, e.version, e.type, e.body, e.headers, e.causation_id, e.correlation_id, e.created_at
from millrace_tenants t join millrace_events e on e.id > (t.id << 40) + ?2 and e.id < (t.id + 1) << 40
where t.name = ?1 and not t.deleting
and e.type in (select value from json_each(?4)) order by e.id limit ?3
