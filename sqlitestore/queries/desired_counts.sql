-- Counts the leases of projections that should run and are not suspended, by name. They are counted separately for each
-- of the tenants ?1, for each tenant of the projections ?2, and for split projections. All others are counted together. ?1
-- and ?2 are JSON arrays. It scans projections and sorts the groups, and runs when the node starts or a lease is free. No
-- index. Locks nothing.
select case when p.partition > 0 or p.name in (select value from json_each(?2)) or t.name in (select value from json_each(?1))
            then t.name else '' end as of_tenant, p.name, count(*)
from millrace_projections p join millrace_tenants t on t.id = p.tenant
where p.desired_state = 'run' and not p.suspended
group by 1, 2
