-- Counts the leases of projections that should run and are not suspended, by name. They are counted separately for
-- each of the tenants $1, for each tenant of the projections $2, and for split projections. All others are counted
-- together. If $1 or $2 is null, the comparison with it is saved. It scans projections, and runs when nodes come and
-- go or a lease is free. Locks nothing. No index.
select case when p.partition > 0 or p.tenant = any($1::text[]) or p.name = any($2::text[]) then p.tenant else '' end as tenant, p.name, count(*)
  from {control}.projections p
 where p.desired_state = 'run' and not p.suspended
 group by 1, 2
