-- dead_letters.sql for the dead letters $4, in both orders: $11 is 1, or -1 for the newest first. It reads these dead letters
-- alone, and sorts them: offset 0 keeps the planner from the other dead letters of the projection. Indexes:
-- dead_letters_pkey, projections_pkey. Locks nothing.
select p.partition, d.id, d.position, d.stream_id, d.stream_version, d.type, d.blocked_by_stream, d.state, d.error, d.stack, d.attempts, d.replays,
       d.first_failed_at, d.last_failed_at, d.ended_at, d.open_replays < 0
  from (select * from {control}.dead_letters where id = any($4::bigint[]) offset 0) d
  join {control}.projections p on p.id = d.projection_id
 where p.tenant = $1::text and p.name = $2::text and ($3::integer = 0 or p.partition = $3::integer)
   and ($5::text is null or d.stream_id = $5::text) and ($6::text is null or d.type = $6::text)
   and ($7::text is null or strpos(d.error, $7::text) > 0) and d.state = any($8::text[])
   and d.position * $11::integer > $9::bigint * $11::integer
 order by d.position * $11::integer
 limit $10::bigint
