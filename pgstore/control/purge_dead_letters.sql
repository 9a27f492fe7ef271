-- Deletes dead letters that ended at least $8 ago, the oldest first, at most $9, and returns their ids. $1 to $7 as in
-- count_dead_letters.sql. It does not delete a dead letter that is parked again meanwhile, nor a discarded one while its stream is
-- parked: without it the event would seem to be handled (later_handled.sql). Indexes: projections_tenant_name_partition_key,
-- dead_letters_projection_id_ended_at_idx (see delete_old_commands.sql), parked_streams_pkey. Locks: the rows until the commit.
with old as (
    select d.id
      from {control}.projections p cross join lateral (
           select d.id, d.ended_at from {control}.dead_letters d
            where d.projection_id = p.id and d.state in ('resolved', 'discarded')
              and d.ended_at <= statement_timestamp() - $8::interval
              and (d.state = 'resolved' or not exists (select from {control}.parked_streams s where s.projection_id = d.projection_id and s.stream_id = d.stream_id))
              and ($4::bigint[] is null or d.id = any($4::bigint[])) and ($5::text is null or d.stream_id = $5::text)
              and ($6::text is null or d.type = $6::text) and ($7::text is null or strpos(d.error, $7::text) > 0)
            order by d.ended_at limit $9::bigint) d
     where p.tenant = $1::text and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer)
     order by d.ended_at limit $9::bigint
)
delete from {control}.dead_letters d using old where d.id = old.id and d.state in ('resolved', 'discarded')
returning d.id
