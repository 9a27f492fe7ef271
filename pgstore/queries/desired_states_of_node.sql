-- desired_states.sql for all leases that node $1 holds. "offset 0" prevents a scan of projections for a few leases.
-- Locks nothing. Indexes: leases_owner_idx, projections_pkey, commands_projection_id_id_idx.
select l.id, w.desired_state, w.has_commands
  from {control}.leases l
 cross join lateral (select case when p.suspended then 'pause' else p.desired_state end as desired_state,
                            exists (select from {control}.commands c where c.projection_id = p.id and c.ended_at is null) as has_commands
                       from {control}.projections p where p.id = l.id offset 0) w
 where l.owner = $1::uuid and (w.desired_state <> 'run' or w.has_commands)
