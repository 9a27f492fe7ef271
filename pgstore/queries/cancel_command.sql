-- Ends a command for all of its partitions. A partition that has begun a replay or is inside a parked stream continues
-- until the owner of its lease ends the command, as at its limit. Channel $4 notifies the nodes. $1 tenant, $2
-- projection, $3 command, which lock_command.sql has locked. Indexes: commands_pkey, commands_root_idx,
-- projections_pkey. Locks: the rows of the command until the commit, and the queue of notifications during the commit.
with cancelled as (
    update {control}.commands c
       set max_events = c.done + c.failed,
           ended_at = case when c.current_stream is null and c.current_dead_letter is null then clock_timestamp() end
      from {control}.projections p
     where (c.id = $3::bigint or c.root = $3::bigint) and c.ended_at is null and p.id = c.projection_id
       and p.tenant = $1::text and p.name = $2::text
    returning c.projection_id, c.ended_at
)
select pg_notify($4::text, 'command ' || c.projection_id) from cancelled c where c.ended_at is null
