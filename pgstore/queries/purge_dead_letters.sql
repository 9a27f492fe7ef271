-- Deletes dead letters that ended at least $9 seconds ago, the oldest first, at most $10. $1 to $8 as in
-- count_dead_letters.sql. Indexes: projections_tenant_name_partition_key, dead_letters_projection_id_ended_at_idx.
-- Locks: the rows until the commit.
with old as (
    select d.id
      from {control}.projections p cross join lateral (
           select d.id, d.ended_at from {control}.dead_letters d
            where d.projection_id = p.id and d.state in ('resolved', 'discarded')
              and d.ended_at <= clock_timestamp() - make_interval(secs => $9::float8)
              and d.state = any($4::text[])
              and ($5::bigint[] is null or d.id = any($5::bigint[])) and ($6::text is null or d.stream_id = $6::text)
              and ($7::text is null or d.type = $7::text) and ($8::text is null or strpos(d.error, $8::text) > 0)
            order by d.ended_at limit $10::bigint) d
     where p.tenant = $1::text and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer)
     order by d.ended_at limit $10::bigint
)
delete from {control}.dead_letters d using old where d.id = old.id
