-- The parked events of a projection, oldest first. Index: dead_letters_projection_id_position_key. Locks nothing.
select d.position, d.stream_id, d.stream_version, d.type, d.error, d.stack, d.attempts, d.first_failed_at, d.last_failed_at
  from {control}.dead_letters d
  join {control}.projections p on p.id = d.projection_id
 where p.tenant = $1::text and p.name = $2::text and p.partition = $3::integer and d.state = 'parked' and d.position > $4::bigint
 order by d.position
 limit $5::bigint
