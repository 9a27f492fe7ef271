-- The dead letter that is due first to be replayed by itself, and in how many seconds; no row if none ever is. At most $2
-- replays, after $3 seconds, growing by $4 with each up to $5; $6 is a part of the error. Letters with as many replays are
-- due in the order in which they failed. So the first of each number of replays is looked up, by jumps from one number to the
-- next. Letters that do not fit the error, or are not the first of a parked stream, are passed over: that one is tried in
-- their place, after its own interval. Indexes: dead_letters_projection_id_replays_last_failed_at_idx, the one of
-- dead_letters by stream, parked_streams_pkey. Locks nothing.
with recursive tried as (
    (select d.replays from {control}.dead_letters d
      where d.projection_id = $1::integer and d.state in ('parked', 'replaying') and not d.behind
      order by d.replays limit 1)
    union all
    select (select d.replays from {control}.dead_letters d
             where d.projection_id = $1::integer and d.state in ('parked', 'replaying') and not d.behind and d.replays > t.replays
             order by d.replays limit 1)
      from tried t where t.replays < $2::integer
)
select f.id, extract(epoch from f.last_failed_at + make_interval(secs => least($3::float8 * power($4::float8, least(t.replays, 60)), $5::float8)) - clock_timestamp())::float8 as due
  from tried t cross join lateral (
       select d.id, d.last_failed_at from {control}.dead_letters d
        where d.projection_id = $1::integer and d.state in ('parked', 'replaying') and not d.behind and d.replays = t.replays
          and strpos(d.error, $6::text) > 0
          and not exists (select from {control}.parked_streams s
                           where s.projection_id = d.projection_id and s.stream_id = d.stream_id
                             and exists (select from {control}.dead_letters e
                                          where e.projection_id = d.projection_id and e.stream_id = d.stream_id
                                            and e.state in ('parked', 'replaying') and e.position < d.position))
        order by d.last_failed_at limit 1) f
 where t.replays < $2::integer
 order by due limit 1
