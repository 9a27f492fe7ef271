-- Returns the rows of command $1: its projection, whether it ended, the result so far, and whether it could run now
-- without an owner, as fence_unowned.sql says. $2 tenant, $3 projection. If the number of partitions has changed since,
-- the rows of a command for one partition may belong to others. Indexes: commands_pkey, commands_root_idx,
-- projections_pkey, leases_pkey, nodes_pkey. As a join, the planner would read all commands of the projection. Locks nothing.
select c.id, c.{projection}, c.ended_at is not null, c.done, c.failed, c.max_events < 0, coalesce(c.stream_id, ''),
       (c.kind = 'discard' or c.done + c.failed >= c.max_events)
       and exists (select 1 from {control}.leases l where l.id = c.{projection} and not {living l.owner})
  from {control}.commands c
 where (c.id = $1::bigint or c.root = $1::bigint)
   and (select p.tenant = {tenant_id $2::text} and p.name = $3::text from {control}.projections p where p.id = c.{projection})
