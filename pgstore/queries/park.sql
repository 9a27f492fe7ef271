-- Parks events: one that failed, which ends its count of failures, and its stream with it where $11 says so; or some that are
-- behind one of their stream ($6). That stream may have come free since it was looked whether it is parked, by a replay whose
-- answer was lost: it is parked again then, and they wait for no other. If the checkpoint was set back, an event that was
-- parked before is parked again; one that is still parked stays as it is where it would only be behind others, and what comes
-- first of its stream is behind none. Indexes: dead_letters_projection_id_position_key, the one of dead_letters by stream,
-- parked_streams_pkey, projections_pkey. Locks: the new rows, and the row of projections FOR NO KEY UPDATE until the commit.
with known as (
    select count(*) as n from {control}.dead_letters d
     where d.projection_id = $1::integer and d.position = any($2::bigint[]) and d.state in ('parked', 'replaying')
), stream as (
    insert into {control}.parked_streams (projection_id, stream_id)
    select distinct $1::integer, s from unnest($3::text[]) s where $6::boolean or $11::boolean
        on conflict (projection_id, stream_id) do nothing
), letters as (
    insert into {control}.dead_letters
        (projection_id, position, stream_id, stream_version, type, behind, error, stack, attempts, first_failed_at, last_failed_at)
    select p.id, l.position, l.stream, l.version, l.type, $6::boolean and (exists (select from {control}.dead_letters e
           where e.projection_id = p.id and e.stream_id = l.stream and e.position < l.position and e.state in ('parked', 'replaying'))
           or exists (select from unnest($2::bigint[], $3::text[]) as e(position, stream)
           where e.stream = l.stream and e.position < l.position)), $7::text, $8::text, $9::integer,
           coalesce(case when p.failing_position = l.position then p.failing_since end, clock_timestamp()), clock_timestamp()
      from {control}.projections p, unnest($2::bigint[], $3::text[], $4::bigint[], $5::text[]) as l(position, stream, version, type)
     where p.id = $1::integer
        on conflict (projection_id, position) do update
       set behind = excluded.behind, state = 'parked', error = excluded.error, stack = excluded.stack, begun = 0, replays = 0,
           attempts = excluded.attempts, last_failed_at = excluded.last_failed_at, ended_at = null,
           first_failed_at = case when dead_letters.ended_at is null then dead_letters.first_failed_at else excluded.first_failed_at end
     where not $6::boolean or dead_letters.state not in ('parked', 'replaying')
)
update {control}.projections p
   set parked = p.parked + $10::integer - known.n,
       failing_position = case when $6::boolean then p.failing_position else 0 end,
       attempts = case when $6::boolean then p.attempts else 0 end,
       failing_since = case when $6::boolean then p.failing_since end,
       crash_attempts = case when $6::boolean then p.crash_attempts else 0 end
  from known
 where p.id = $1::integer
