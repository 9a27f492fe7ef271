-- Returns the desired state of the projections $1, and whether they have open commands. Projections that should run
-- and have none are left out. "offset 0" reads projections one by one: without statistics, the planner might assume
-- that half of them are paused. Indexes: projections_pkey, commands_projection_id_id_idx. Locks nothing.
select r.id, w.desired_state, w.has_commands
  from unnest($1::integer[]) as r(id)
 cross join lateral (select case when p.suspended then 'pause' else p.desired_state end as desired_state,
                            exists (select from {control}.commands c where c.projection_id = p.id and c.ended_at is null) as has_commands
                       from {control}.projections p where p.id = r.id offset 0) w
 where w.desired_state <> 'run' or w.has_commands
