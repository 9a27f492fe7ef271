-- Returns the rows of command $1: its projection, whether it ended, the result so far, and whether it could run now
-- without an owner, as run_unowned_command.sql does. $2 tenant, $3 projection. If the number of partitions has changed
-- since, the rows of a command for one partition may belong to others. Indexes: commands_pkey, commands_root_idx,
-- projections_pkey, leases_pkey, nodes_pkey. Locks nothing.
select c.id, c.projection_id, c.ended_at is not null, c.done, c.failed,
       (c.kind = 'discard' or c.done + c.failed >= c.max_events)
       and exists (select from {control}.leases l
                    where l.id = c.projection_id
                      and (l.owner is null or not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp())))
  from {control}.commands c
 cross join lateral (select from {control}.projections p
                      where p.id = c.projection_id and p.tenant = $2::text and p.name = $3::text offset 0) p
 where c.id = $1::bigint or c.root = $1::bigint
