-- Returns the notices after ?1 in order. Index: the primary key. Locks nothing.
select id, coalesce(tenant, ''), coalesce(projection, 0), commanded, nodes, operations from millrace_notices where id > ?1 order by id
