-- Gives stream ?3 the alias ?2 in tenant ?1, if the tenant is active and the alias is free. Indexes: tenants by name, and the
-- primary key of aliases. Lock: that of the file's writer.
insert into millrace_aliases (tenant, name, stream_id, created_at)
select t.id, ?2, ?3, :now from millrace_tenants t where t.name = ?1 and t.state = 'active'
on conflict do nothing
