-- Counts the leases of projections that should run and are not suspended, by name: separately for each of the tenants $1, together for all
-- others. It scans projections, and runs when nodes come and go or a lease is free. Locks nothing. No index.
select case when p.tenant = any($1::text[]) then p.tenant else '' end as tenant, p.name, count(*)
  from {control}.projections p
 where p.desired_state = 'run' and not p.suspended
 group by 1, 2
