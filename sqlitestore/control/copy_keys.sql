-- Returns the idempotency keys of tenant ?1 as JSON objects, in order. Indexes: that of tenants by name, the primary key of keys. Locks
-- nothing.
select json_object('key', k.key, 'stream', k.stream_id, 'first', k.first_version, 'last', k.last_version, 'at', k.created_at)
from millrace_tenants t cross join millrace_append_keys k on k.tenant = t.id where t.name = ?1 order by k.key
