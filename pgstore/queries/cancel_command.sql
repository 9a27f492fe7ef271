-- Ends a command. If it has begun a replay or is inside a parked stream, the owner of the lease ends it, as at its
-- limit, and channel $5 notifies the nodes. $1 tenant, $2 projection, $3 partition, $4 command. Index: commands_pkey.
-- Locks: the command's row until the commit, and the queue of notifications during the commit.
with cancelled as (
    update {control}.commands c
       set max_events = c.done + c.failed,
           ended_at = case when c.current_stream is null and c.current_dead_letter is null then clock_timestamp() end
     where c.id = $4::bigint and c.ended_at is null
       and c.projection_id = (select p.id from {control}.projections p
                          where p.tenant = $1::text and p.name = $2::text and p.partition = $3::integer)
    returning c.projection_id, c.ended_at
)
select pg_notify($5::text, 'command ' || c.projection_id) from cancelled c where c.ended_at is null
