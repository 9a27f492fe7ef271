-- Returns events of the tenant ?1 after position ?2, at most ?3, in order. It returns none if they are being deleted: see
-- tenant_deleting.sql. Indexes: that of tenants by name, and the primary key. Locks nothing.
select e.position, e.stream_id, e.version, e.type, e.body, e.headers, e.causation_id, e.correlation_id, e.created_at
from millrace_tenants t join millrace_events e on e.id > (t.id << 40) + ?2 and e.id < (t.id + 1) << 40
where t.name = ?1 and not t.deleting order by e.id limit ?3
