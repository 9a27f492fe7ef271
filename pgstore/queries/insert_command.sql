-- Inserts a command on dead letters, one row for each partition, and notifies the nodes over channel $10. The first row
-- is the root of the others. $1 tenant, $2 projection, $3 partition (0: all), $4 kind, $5 to $8 the filter, $9 the
-- limit for all rows together. It deletes commands that ended a day ago, unless another row of the command is open. The
-- caller holds the structural lock of the tenant. Indexes: projections_tenant_name_partition_key,
-- commands_projection_id_ended_at_idx, commands_pkey, commands_root_idx. Locks: the new rows, and the queue of
-- notifications during the commit.
with p as materialized (
    select id, partition from {control}.projections
     where tenant = $1::text and name = $2::text and ($3::integer = 0 or partition = $3::integer)
), deleted as (
    delete from {control}.commands c
     where c.id in (select o.id from p cross join lateral ({old_commands}) o)
), root as (
    insert into {control}.commands (projection_id, kind, dead_letter_ids, stream_id, type, error, max_events)
    select p.id, $4::text, $5::bigint[], $6::text, $7::text, $8::text, $9::bigint from p order by p.partition limit 1
    returning id, projection_id
), others as (
    insert into {control}.commands (root, projection_id, kind, dead_letter_ids, stream_id, type, error, max_events)
    select root.id, p.id, $4::text, $5::bigint[], $6::text, $7::text, $8::text, $9::bigint
      from p join root on root.projection_id <> p.id
    returning projection_id
)
select root.id, count(pg_notify($10::text, 'command ' || i.projection_id))
  from root cross join (select projection_id from root union all select projection_id from others) i
 group by root.id
