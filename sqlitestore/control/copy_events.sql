-- Returns the events of tenant ?1 as JSON objects, in order. Times are as readers get them: earlier builds kept any. intact is 0 if an event
-- does not match its checksum. Indexes: that of tenants by name, the primary key of events. Locks nothing.
select json_object('position', e.position, 'slot', e.slot, 'stream', e.stream_id, 'version', e.version, 'type', e.type, 'body', e.body,
       'headers', e.headers, 'causation', e.causation_id, 'correlation', e.correlation_id, 'at',
       min(max(e.created_at, -62135596800000000), 253402214400000000),
       'intact', e.checksum = millrace_checksum(e.id, e.version, e.created_at, e.stream_id, e.type, e.body, e.headers, e.causation_id, e.correlation_id))
from millrace_tenants t cross join millrace_events e on e.id > t.id << 40 and e.id < (t.id + 1) << 40
where t.name = ?1 order by e.id
