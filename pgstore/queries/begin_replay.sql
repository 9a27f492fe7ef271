-- Begins the next replay of a command. $1 lease, $2 owner, $3 epoch, $4 command, $5 the dead letter that the caller
-- replayed last. Indexes and locks: those of the function.
select d.id, d.position, d.stream_id, d.open_replays, d.attempts
  from {control}.begin_replay($1::integer, $2::uuid, $3::bigint, $4::bigint, $5::bigint) d
