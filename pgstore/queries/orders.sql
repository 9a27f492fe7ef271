-- Which of these leases' projections are paused, and which have commands for their dead letters.
-- Indexes: projections_pkey, for each of them by itself, since the planner may take half of all to be paused where the table was
-- not analysed, and commands_projection_id_id_idx. Locks nothing.
select r.id, w.desired_state, w.commanded
  from unnest($1::integer[]) as r(id)
 cross join lateral (select p.desired_state, exists (select from {control}.commands c where c.projection_id = p.id and c.ended_at is null) as commanded
                       from {control}.projections p where p.id = r.id offset 0) w
 where w.desired_state <> 'run' or w.commanded
