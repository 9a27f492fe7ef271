-- Returns the aliases of the tenant ?1 after name ?2, at most ?3, in order. The columns are those of transfer.Aliases. Indexes:
-- tenants by name, and the primary key. Locks nothing.
select name, stream_id, created_at from millrace_aliases
where tenant = (select id from millrace_tenants where name = ?1) and name > ?2 order by name limit ?3
