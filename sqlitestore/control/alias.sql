-- Returns the state of tenant ?1, and the stream with the alias ?2, or null. Locks nothing. Indexes: tenants by name, and the
-- primary key of aliases.
select t.state, a.stream_id
from millrace_tenants t left join millrace_aliases a on a.tenant = t.id and a.name = ?2
where t.name = ?1
