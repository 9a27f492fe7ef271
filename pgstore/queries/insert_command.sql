-- Inserts a command on dead letters, and notifies the nodes over channel $10. $1 tenant, $2 projection, $3 partition,
-- $4 kind, $5 to $8 the filter, $9 the limit. It deletes commands that ended a day ago. Indexes:
-- projections_tenant_name_partition_key, commands_projection_id_ended_at_idx. Locks: the new row, and the queue of
-- notifications during the commit.
with p as (
    select id from {control}.projections where tenant = $1::text and name = $2::text and partition = $3::integer
), deleted as (
    delete from {control}.commands c
     where c.id in (select o.id from {control}.commands o, p
                     where o.projection_id = p.id and o.ended_at < clock_timestamp() - interval '1 day' limit 1000)
), inserted as (
    insert into {control}.commands (projection_id, kind, dead_letter_ids, stream_id, type, error, max_events)
    select p.id, $4::text, $5::bigint[], $6::text, $7::text, $8::text, $9::bigint from p
    returning id, projection_id
)
select i.id, i.projection_id, pg_notify($10::text, 'command ' || i.projection_id) is null from inserted i
