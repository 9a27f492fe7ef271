-- Counts dead letters of a projection. $1 tenant, $2 projection, $3 partition (0: all), $4 states, $5 to $8 the filter.
-- Indexes: projections_tenant_name_partition_key, those of dead_letters. Locks nothing.
select coalesce(sum(d.n), 0)::bigint
  from {control}.projections p cross join lateral (
       select count(*) as n from {control}.dead_letters d
        where d.projection_id = p.id and d.state = any($4::text[])
          and ($5::bigint[] is null or d.id = any($5::bigint[])) and ($6::text is null or d.stream_id = $6::text)
          and ($7::text is null or d.type = $7::text) and ($8::text is null or strpos(d.error, $8::text) > 0)) d
 where p.tenant = $1::text and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer)
