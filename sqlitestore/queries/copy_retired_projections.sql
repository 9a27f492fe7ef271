-- Returns the retired names of the tenant ?1 after the name ?2, at most ?3, in order. The columns are those of
-- transfer.RetiredProjections. Indexes: tenants by name, and the primary key. Locks nothing.
select name, successor, reason, retired_at from millrace_retired_projections
where tenant = (select id from millrace_tenants where name = ?1) and name > ?2 order by name limit ?3
