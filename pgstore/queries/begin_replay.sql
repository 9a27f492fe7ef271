-- Begins the next replay of a command. Indexes and locks: those of the function.
select d.id, d.position, d.stream_id, d.begun, d.attempts from {control}.begin_replay($1::integer, $2::uuid, $3::bigint, $4::bigint, $5::bigint) d
