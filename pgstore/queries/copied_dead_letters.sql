-- Returns the dead letters of tenant $1 after projection $2 and position $3, at most $4, in order. The columns are those
-- of transfer.DeadLetters. {projection_ids}, {dead_letter_ids} and {command_ids} are what the copy added to ids. Locks
-- nothing. Indexes: projections_tenant_name_partition_key, dead_letters_projection_id_position_key.
select d.projection_id - {projection_ids}::bigint, d.position, d.id - {dead_letter_ids}, d.stream_id, d.stream_version, d.type,
       d.blocked_by_stream::integer::bigint, d.state, d.error, d.stack, d.attempts::bigint, d.replays::bigint, d.open_replays::bigint,
       case when d.last_command = 0 then 0 else d.last_command - {command_ids} end,
       (extract(epoch from d.first_failed_at) * 1000000)::bigint, (extract(epoch from d.last_failed_at) * 1000000)::bigint,
       (extract(epoch from d.ended_at) * 1000000)::bigint
  from {control}.dead_letters d
 where d.projection_id in (select p.id from {control}.projections p where p.tenant = $1::text)
   and (d.projection_id, d.position) > ($2::bigint + {projection_ids}, $3::bigint)
 order by d.projection_id, d.position limit $4::bigint
