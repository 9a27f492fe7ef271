-- Which of these leases' projections are not simply wanted to run. Index: projections_pkey, for each of them by itself, since
-- the planner may take half of all to be paused where the table was not analysed. Locks nothing.
select r.id, w.wanted
  from unnest($1::integer[]) as r(id)
 cross join lateral (select p.wanted from {control}.projections p where p.id = r.id offset 0) w
 where w.wanted <> 'run'
