-- Ends a command. One that has begun a replay, or is in the middle of a parked stream, is ended by the holder of the lease, as at
-- its limit: the nodes are told of it by channel $5. Index: commands_pkey. Locks: its row until the commit, and the queue of
-- notifications during it.
with cancelled as (
    update {control}.commands c
       set most = c.done + c.failed, ended_at = case when c.stream is null and c.replaying is null then clock_timestamp() end
     where c.id = $4::bigint and c.ended_at is null
       and c.projection_id = (select p.id from {control}.projections p where p.tenant = $1::text and p.name = $2::text and p.partition = $3::integer)
    returning c.projection_id, c.ended_at
)
select pg_notify($5::text, 'command ' || c.projection_id) from cancelled c where c.ended_at is null
