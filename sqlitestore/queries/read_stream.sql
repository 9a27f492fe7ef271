-- Returns events of the stream ?2 of the tenant ?1 from version ?3 on and after position ?4, at most ?5. It returns none
-- if they are being deleted: see tenant_deleting.sql. Indexes: that of tenants by name, and that by stream and version.
-- Locks nothing.
select e.position, e.stream_id, e.version, e.type, e.body, e.headers, e.causation_id, e.correlation_id, e.created_at
from millrace_tenants t join millrace_events e on e.tenant = t.id and e.stream_id = ?2 and e.version >= ?3 and e.position > ?4
where t.name = ?1 and not t.deleting order by e.version limit ?5
