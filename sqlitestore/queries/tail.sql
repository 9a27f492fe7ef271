-- Returns the head of the tenant ?1, and its events with an id above ?2, at most ?3, in order, in one snapshot. The head is
-- the id of the last position, the same in each row, and null if the events are being deleted. Without events there is
-- one row, whose other columns are null. Without a tenant there is none. Indexes: that of tenants by name, and the
-- primary key of events. Locks nothing. For "+ 0" see read_all.sql.
select e.id, e.stream_id, e.version, e.type, cast(e.body as blob), cast(e.headers as blob), e.causation_id, e.correlation_id, e.created_at, e.checksum,
       case when t.deleting = 0 then t.id << 40 | t.head end
from millrace_tenants t left join millrace_events e on e.id > ?2 and e.id <= (t.id << 40 | t.head)
where t.name = ?1 order by e.id limit ?3 + 0
