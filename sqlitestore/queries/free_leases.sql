-- Returns the leases of runnable projections that have no owner or a dead one. For the node ?1 that owns the file, all
-- leases but its own count as such. For another node it returns nothing. It selects by the names of projections, ?2,
-- and tenants, ?3 (empty: all), which are JSON arrays. ?4 is whether leases without an owner are
-- returned. It runs often, and nearly always finds nothing. So it reads no
-- lease that the node owns. Indexes: leases by owner, and primary keys. Locks nothing.
select p.id, t.name, p.name, p.partition
from (select id from millrace_leases where owner is null and ?4
      union all
      select id from millrace_leases where owner < ?1
      union all
      select id from millrace_leases where owner > ?1) u
cross join millrace_projections p on p.id = u.id
cross join millrace_tenants t on t.id = p.tenant
where exists (select 1 from millrace_nodes where id = ?1)
  and p.desired_state = 'run' and not p.suspended and p.name in (select value from json_each(?2))
  and (json_array_length(?3) = 0 or t.name in (select value from json_each(?3)))
