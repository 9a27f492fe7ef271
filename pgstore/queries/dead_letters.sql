-- Returns dead letters of a projection after position $9, in order. {beyond} and {direction} are > and asc, or < and
-- desc for the newest first. $1 to $8 as in count_dead_letters.sql, $10 limit. It reads a page of each partition.
-- Indexes: projections_tenant_name_partition_key, dead_letters_projection_id_position_key. Locks nothing.
select p.partition, d.*
  from {control}.projections p cross join lateral (
       select d.id, d.position, d.stream_id, d.stream_version, d.type, d.blocked_by_stream, d.state, d.error, d.stack, d.attempts, d.replays,
              d.first_failed_at, d.last_failed_at, d.ended_at
         from {control}.dead_letters d
        where d.projection_id = p.id and d.state = any($4::text[])
          and ($5::bigint[] is null or d.id = any($5::bigint[])) and ($6::text is null or d.stream_id = $6::text)
          and ($7::text is null or d.type = $7::text) and ($8::text is null or strpos(d.error, $8::text) > 0)
          and d.position {beyond} $9::bigint
        order by d.position {direction} limit $10::bigint) d
 where p.tenant = $1::text and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer)
 order by d.position {direction}
 limit $10::bigint
