-- Returns the commands of tenant $1 after projection $2 and id $3, at most $4, in order. The columns are those of
-- transfer.Commands. {projection_ids}, {dead_letter_ids} and {command_ids} are what the copy added to ids. Locks nothing.
-- Indexes: projections_tenant_name_partition_key, commands_projection_id_ended_at_idx.
select c.projection_id - {projection_ids}::bigint, c.id - {command_ids}, c.root - {command_ids}, c.kind,
       case when c.dead_letter_ids is not null then
           (select coalesce(jsonb_agg(u.id - {dead_letter_ids} order by u.n), '[]') from unnest(c.dead_letter_ids) with ordinality as u (id, n))::text
       end,
       c.stream_id, c.type, c.error, c.max_events, c.current_stream, c.after_position, c.done, c.failed,
       c.current_dead_letter - {dead_letter_ids}, (extract(epoch from c.created_at) * 1000000)::bigint, (extract(epoch from c.ended_at) * 1000000)::bigint
  from {control}.commands c
 where c.projection_id in (select p.id from {control}.projections p where p.tenant = $1::text)
   and (c.projection_id, c.id) > ($2::bigint + {projection_ids}, $3::bigint + {command_ids})
 order by c.projection_id, c.id limit $4::bigint
