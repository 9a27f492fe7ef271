-- Counts dead letters of a projection. $1 tenant, $2 projection, $3 partition (0: all), $4 to $7 the filter: ids, stream, type, a
-- part of the error (null: any), $8 states. The order, that of the indexes by projection, keeps the planner from another index: if
-- the table was nearly empty when it was analyzed, it would read the parked events of all projections. Indexes:
-- projections_tenant_name_partition_key, those of dead_letters. Locks nothing.
select coalesce(sum(d.n), 0)::bigint
  from {control}.projections p cross join lateral (
       select count(*) as n from (
              select from {control}.dead_letters d
               where d.projection_id = p.id and d.state = any($8::text[])
                 and ($4::bigint[] is null or d.id = any($4::bigint[])) and ($5::text is null or d.stream_id = $5::text)
                 and ($6::text is null or d.type = $6::text) and ($7::text is null or strpos(d.error, $7::text) > 0)
               order by d.position offset 0) d) d
 where p.tenant = $1::text and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer)
