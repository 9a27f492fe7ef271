-- read_stream.sql for the types in ?6, a JSON array. Indexes: as there. Locks nothing.
select e.position, e.stream_id, e.version, e.type, e.body, e.headers, e.causation_id, e.correlation_id, e.created_at
from millrace_tenants t join millrace_events e on e.tenant = t.id and e.stream_id = ?2 and e.version >= ?3 and e.position > ?4
where t.name = ?1 and not t.deleting
and e.type in (select value from json_each(?6)) order by e.version limit ?5
