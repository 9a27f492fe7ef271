-- Reports whether the projection of dead letter $2 has handled a later event of its stream, so that a replay would be out of order. That is an
-- event of the tenant $1 up to position $3, of one of the types $4 (null: any), that is not parked. If $5 is set, the stream is parked: all events
-- from the first that is blocked by an earlier one are parked, or were discarded, so it reads only those before that. If the stream has more than
-- 10,000 later events up to there, it reads no more, and reports true. Indexes: dead_letters_pkey, events_stream_id_stream_version_key,
-- dead_letters_projection_id_position_key, that of dead_letters by stream. Locks nothing.
select exists (select from {tenant}.events e
                where e.stream_id = l.stream_id and e.stream_version > l.stream_version and e.stream_version <= l.stream_version + 10000
                  and e.global_seq <= b.upto and ($4::text[] is null or e.type = any($4::text[]))
                  and not exists (select from {control}.dead_letters d
                                   where d.projection_id = l.projection_id and d.position = e.global_seq
                                     and (d.state in ('parked', 'replaying') or $5::boolean and d.state = 'discarded')))
       or coalesce((select e.global_seq <= b.upto from {tenant}.events e
                     where e.stream_id = l.stream_id and e.stream_version > l.stream_version + 10000 order by e.stream_version limit 1), false)
  from {control}.tenants t cross join {control}.dead_letters l
 cross join lateral (
       select least($3::bigint, (select d.position - 1 from {control}.dead_letters d
                                  where $5::boolean and d.projection_id = l.projection_id and d.stream_id = l.stream_id
                                    and d.state in ('parked', 'replaying') and d.position >= l.position and d.blocked_by_stream
                                  order by d.position limit 1)) as upto) b
 where t.tenant = $1::text and l.id = $2::bigint
