-- Returns the events of the tenant ?1 after position ?2, at most ?3, in order. The columns are those of transfer.Events, and
-- then id and checksum. Index: the primary key. Locks nothing.
select e.position, e.slot, e.stream_id, e.version, e.type, e.body, e.headers, e.causation_id, e.correlation_id, e.created_at, e.id, e.checksum
from millrace_events e join (select id from millrace_tenants where name = ?1) t
where e.id > (t.id << 40) + ?2 and e.id < (t.id + 1) << 40 order by e.id limit ?3
