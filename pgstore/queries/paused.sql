-- Which of these leases' projections are wanted to pause. Index: projections_pkey, for each of them by itself, since the
-- planner may take half of all to be paused where the table was not analysed. Locks nothing.
select r.id
  from unnest($1::integer[]) as r(id)
 where (select p.paused from {control}.projections p where p.id = r.id)
