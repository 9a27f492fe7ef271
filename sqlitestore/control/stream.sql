-- Returns of stream ?2 of tenant ?1 whether a drop is deleting its events, its version, 0 if there is none, and the times of its
-- first and last event, or null. Indexes: tenants by name, the primary key of streams, and that of events by stream and version.
-- Locks nothing.
select t.deleting, coalesce(s.version, 0),
       (select e.created_at from millrace_events e where e.tenant = t.id and e.stream_id = ?2 order by e.version limit 1),
       (select e.created_at from millrace_events e where e.tenant = t.id and e.stream_id = ?2 order by e.version desc limit 1)
from millrace_tenants t left join millrace_streams s on s.tenant = t.id and s.stream_id = ?2
where t.name = ?1
