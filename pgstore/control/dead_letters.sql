-- Returns dead letters of a projection after position $9, at most $10, in order. $1 to $8 as in count_dead_letters.sql. It reads
-- a page of each partition. Indexes: projections_tenant_name_partition_key, dead_letters_projection_id_position_key. Locks
-- nothing.
select p.partition, d.*
  from {control}.projections p cross join lateral (
       select d.id, d.position, d.stream_id, d.stream_version, d.type, d.blocked_by_stream, d.state, d.error, d.stack, d.attempts, d.replays,
              d.first_failed_at, d.last_failed_at, d.ended_at, d.open_replays < 0
         from {control}.dead_letters d
        where d.projection_id = p.id and d.state = any($8::text[])
          and ($4::bigint[] is null or d.id = any($4::bigint[])) and ($5::text is null or d.stream_id = $5::text)
          and ($6::text is null or d.type = $6::text) and ($7::text is null or strpos(d.error, $7::text) > 0)
          and d.position > $9::bigint
        order by d.position asc limit $10::bigint) d
 where p.tenant = $1::text and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer)
 order by d.position asc
 limit $10::bigint
