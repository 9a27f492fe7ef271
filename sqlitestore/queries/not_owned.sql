-- Counts the projections that should run and have no living owner, by name. ?1 is the living owner of the file, '' for none,
-- ?2 when the last owner was seen alive, and ?3 is the time since which a projection must have no living owner to be overdue.
-- The names in ?4, a JSON array, are counted by tenant. It reads no lease that the living owner holds. It scans the row of
-- the owner. Indexes: leases by owner, and primary keys. Locks nothing. It sorts the names that it found.
select p.name, case when p.name in (select value from json_each(?4)) then t.name else '' end as of_tenant, count(*),
       count(*) filter (where coalesce(u.free_since, (select case when n.id = u.owner then ?2 else n.started_at end from millrace_nodes n)) < ?3)
from (select id, owner, free_since from millrace_leases where owner is null
      union all
      select id, owner, free_since from millrace_leases where owner < ?1
      union all
      select id, owner, free_since from millrace_leases where owner > ?1) u
cross join millrace_projections p on p.id = u.id
cross join millrace_tenants t on t.id = p.tenant
where not p.suspended and p.desired_state = 'run' and not p.halted
group by p.name, of_tenant
order by p.name, of_tenant
