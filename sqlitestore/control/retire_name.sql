-- Retires the name ?2 of the tenant ?1, for the reason ?3 and with the successor ?4 (empty: none). A name that is retired already
-- changes. Indexes: tenants by name, and the primary key. Lock: that of the file's writer.
insert into millrace_retired_projections (tenant, name, reason, successor, retired_at)
select id, ?2, ?3, nullif(?4, ''), :now from millrace_tenants where name = ?1
on conflict (tenant, name) do update set reason = excluded.reason, successor = excluded.successor
