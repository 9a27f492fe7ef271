-- How many leases are wanted of each projection: apart for each of the tenants $1, together for all others. It reads all
-- of projections, and is asked for when nodes come and go or something is free. Locks nothing. No index.
select case when p.tenant = any($1::text[]) then p.tenant else '' end as tenant, p.name, count(*)
  from {control}.projections p
 where p.desired_state = 'run'
 group by 1, 2
