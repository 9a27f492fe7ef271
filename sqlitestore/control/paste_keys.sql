-- Inserts the rows ?2 of copy_keys.sql into tenant ?1. Index: that of tenants by name. Lock: that of the file's writer.
insert into millrace_append_keys (tenant, key, stream_id, first_version, last_version, created_at)
select t.id, list.value->>'key', list.value->>'stream', list.value->>'first', list.value->>'last', list.value->>'at'
from millrace_tenants t cross join json_each(?2) list where t.name = ?1
