-- Returns the streams of tenant ?1 as JSON objects, in order. Indexes: that of tenants by name, the primary key of streams. Locks nothing.
select json_object('stream', s.stream_id, 'version', s.version)
from millrace_tenants t cross join millrace_streams s on s.tenant = t.id where t.name = ?1 order by s.stream_id
