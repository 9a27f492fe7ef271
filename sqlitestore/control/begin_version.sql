-- Retires the earlier versions ?3 (JSON) of a projection, since the tenant ?1 begins with version ?2. It changes nothing if one of
-- them has rows, if the version is retired, if the tenant is not active, or if the version has rows, unless ?4. Indexes: tenants by
-- name, projections by tenant, and the primary key of retired names. Locks: the file has one writer.
insert into millrace_retired_projections (tenant, name, successor, reason, retired_at)
select t.id, earlier.value, ?2, 'unused', :now
from millrace_tenants t cross join json_each(?3) earlier
where t.name = ?1 and t.state = 'active'
  and not exists (select 1 from millrace_projections p
                  where p.tenant = t.id and (p.name = ?2 and not ?4 or p.name in (select value from json_each(?3))))
  and not exists (select 1 from millrace_retired_projections x where x.tenant = t.id and x.name = ?2)
on conflict (tenant, name) do update set successor = excluded.successor, reason = excluded.reason, retired_at = excluded.retired_at
