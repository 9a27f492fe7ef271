-- Returns the events of stream ?2 of tenant ?1, or those at the positions ?3 (JSON): positions, streams, types and headers. Indexes:
-- tenants by name, that of events by stream and version, the primary key of events. Locks nothing.
select e.position, e.stream_id, e.type, coalesce(e.headers, '')
from millrace_tenants t join millrace_events e on e.tenant = t.id and e.stream_id = ?2 where t.name = ?1
union all
select e.position, e.stream_id, e.type, coalesce(e.headers, '')
from millrace_tenants t cross join json_each(?3) list join millrace_events e on e.id = (t.id << 40) + list.value where t.name = ?1
