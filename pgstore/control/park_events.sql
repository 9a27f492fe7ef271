-- Parks an event of projection $1 that failed. With $6 it parks events that are blocked by an earlier event of their stream. That
-- stream may have been released since the caller checked, by a replay whose answer was lost. Then its first event is marked as
-- not blocked. If the checkpoint was set back, an event that was parked before is parked again. With $6, an event that is still
-- parked is not changed. $2 to $5 positions, streams, versions and types, $7 error, $8 stack, $9 attempts. Indexes:
-- dead_letters_projection_id_position_key, that of dead_letters by stream, projections_pkey. Locks: the new rows.
insert into {control}.dead_letters
       (projection_id, position, stream_id, stream_version, type, blocked_by_stream, error, stack, attempts, first_failed_at, last_failed_at)
select p.id, e.position, e.stream, e.version, e.type,
       $6::boolean and (exists (select from {control}.dead_letters x
                                 where x.projection_id = p.id and x.stream_id = e.stream and x.position < e.position
                                   and x.state in ('parked', 'replaying'))
                        or exists (select from unnest($2::bigint[], $3::text[]) as x(position, stream)
                                    where x.stream = e.stream and x.position < e.position)),
       $7::text, $8::text, $9::integer,
       coalesce(case when p.failing_position = e.position then p.failing_since end, clock_timestamp()), clock_timestamp()
  from {control}.projections p, unnest($2::bigint[], $3::text[], $4::bigint[], $5::text[]) as e(position, stream, version, type)
 where p.id = $1::integer
    on conflict (projection_id, position) do update
   set stream_id = excluded.stream_id, stream_version = excluded.stream_version, type = excluded.type,
       blocked_by_stream = excluded.blocked_by_stream, state = 'parked', error = excluded.error, stack = excluded.stack,
       open_replays = 0, replays = 0, attempts = excluded.attempts, last_failed_at = excluded.last_failed_at, ended_at = null,
       first_failed_at = case when dead_letters.ended_at is null then dead_letters.first_failed_at else excluded.first_failed_at end
 where not $6::boolean or dead_letters.state not in ('parked', 'replaying')
