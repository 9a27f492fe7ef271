-- Inserts dead letters. $1 to $17 are the columns of transfer.DeadLetters. {projection_ids}, {dead_letter_ids} and
-- {command_ids} are added to the ids of the source. Indexes: those of dead_letters. Locks: the new rows, and their
-- projections FOR KEY SHARE.
insert into {control}.dead_letters
    (projection_id, position, id, stream_id, stream_version, type, blocked_by_stream, state, error, stack, attempts, replays, open_replays,
     last_command, first_failed_at, last_failed_at, ended_at)
overriding system value
select r.projection + {projection_ids}, r.position, r.id + {dead_letter_ids}, r.stream_id, r.version, r.type, r.blocked <> 0, r.state, r.error, r.stack,
       r.attempts, r.replays, r.open_replays, case when r.last_command = 0 then 0 else r.last_command + {command_ids} end,
       timestamptz 'epoch' + r.first_failed_at * interval '1 microsecond', timestamptz 'epoch' + r.last_failed_at * interval '1 microsecond',
       timestamptz 'epoch' + r.ended_at * interval '1 microsecond'
  from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::text[],
              $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[])
    as r (projection, position, id, stream_id, version, type, blocked, state, error, stack, attempts, replays, open_replays, last_command,
          first_failed_at, last_failed_at, ended_at)
