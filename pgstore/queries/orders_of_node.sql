-- Which projections of a node's leases are paused, and which have commands for their dead letters. "offset 0" keeps projections
-- from being read as a whole for a few leases. Locks nothing. Indexes: leases_owner_idx, projections_pkey,
-- commands_projection_id_id_idx.
select l.id, w.desired_state, w.commanded
  from {control}.leases l
 cross join lateral (select p.desired_state, exists (select from {control}.commands c where c.projection_id = p.id and c.ended_at is null) as commanded
                       from {control}.projections p where p.id = l.id offset 0) w
 where l.owner = $1::uuid and (w.desired_state <> 'run' or w.commanded)
