-- Returns the state that an append to the stream ?2 of the tenant ?1 needs: the states of the tenant and of the stream,
-- and whether its key ?3 (null: none) was used before. It returns no row if there is no such tenant. Locks: nothing;
-- the caller has begun a transaction that writes. Indexes: that of tenants by name, and the primary keys of streams and
-- keys.
select t.id, t.state, t.head, coalesce(s.version, 0), k.stream_id, k.first_version, k.last_version
from millrace_tenants t
left join millrace_streams s on s.tenant = t.id and s.stream_id = ?2
left join millrace_append_keys k on k.tenant = t.id and k.key = ?3
where t.name = ?1
