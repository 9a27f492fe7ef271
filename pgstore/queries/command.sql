-- Asks the holder of a projection's lease to do something with dead letters, and tells the nodes by channel $10 which row
-- it is. Commands that ended a day ago are forgotten. Indexes: projections_tenant_name_partition_key, commands_projection_id_ended_at_idx.
-- Locks: the new row, and the queue of notifications during the commit.
with p as (
    select id from {control}.projections where tenant = $1::text and name = $2::text and partition = $3::integer
), forgotten as (
    delete from {control}.commands c
     where c.id in (select o.id from {control}.commands o, p
                     where o.projection_id = p.id and o.ended_at < clock_timestamp() - interval '1 day' limit 1000)
), made as (
    insert into {control}.commands (projection_id, kind, letters, stream_id, type, error, most)
    select p.id, $4::text, $5::bigint[], $6::text, $7::text, $8::text, $9::bigint from p
    returning id, projection_id
)
select made.id, made.projection_id, pg_notify($10::text, 'command ' || made.projection_id) is null from made
