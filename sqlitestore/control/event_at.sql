-- Returns the event of tenant ?1 at position ?2, or the newest if that is 0, without its contents, as a JSON object. Indexes: that of tenants
-- by name, the primary key of events. Locks nothing.
select json_object('position', e.position, 'stream', e.stream_id, 'version', e.version, 'type', e.type, 'at', e.created_at)
from millrace_tenants t cross join millrace_events e
  on e.id = case when ?2 = 0 then (select max(n.id) from millrace_events n where n.id > t.id << 40 and n.id < (t.id + 1) << 40) else (t.id << 40) + ?2 end
where t.name = ?1
