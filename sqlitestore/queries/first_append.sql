-- Returns the first append of the tenant ?1 with the key ?2: the tenant's number, the stream, and the first and last version. Indexes:
-- tenants by name, the primary key of keys. Locks nothing.
select t.id, k.stream_id, k.first_version, k.last_version
from millrace_tenants t join millrace_append_keys k on k.tenant = t.id and k.key = ?2
where t.name = ?1
