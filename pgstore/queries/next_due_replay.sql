-- Returns the dead letter whose automatic replay is due first, and in how many seconds it is due. It returns no row
-- if none ever will be. $1 projection, $2 maximum of replays, $3 first interval in seconds, $4 its growth with each
-- replay, $5 its maximum, $6 a part of the error. Dead letters with the same number of replays are due in the order
-- in which they failed. So the statement skips through the index from one number of replays to the next, and takes
-- the first dead letter of each. It leaves out those whose error does not match, and all of a parked stream except
-- the first, which is replayed in their place after its own interval. Indexes:
-- dead_letters_projection_id_replays_last_failed_at_idx, that of dead_letters by stream, parked_streams_pkey. Locks
-- nothing.
with recursive tried as (
    (select d.replays from {control}.dead_letters d
      where d.projection_id = $1::integer and d.state in ('parked', 'replaying') and not d.blocked_by_stream
      order by d.replays limit 1)
    union all
    select (select d.replays from {control}.dead_letters d
             where d.projection_id = $1::integer and d.state in ('parked', 'replaying') and not d.blocked_by_stream and d.replays > t.replays
             order by d.replays limit 1)
      from tried t where t.replays < $2::bigint
)
select f.id, extract(epoch from f.last_failed_at - clock_timestamp()
                + make_interval(secs => least($3::float8 * power($4::float8, least(t.replays, 60)), $5::float8)))::float8 as due
  from tried t cross join lateral (
       select d.id, d.last_failed_at from {control}.dead_letters d
        where d.projection_id = $1::integer and d.state in ('parked', 'replaying') and not d.blocked_by_stream and d.replays = t.replays
          and strpos(d.error, $6::text) > 0
          and not exists (select from {control}.parked_streams s
                           where s.projection_id = d.projection_id and s.stream_id = d.stream_id
                             and exists (select from {control}.dead_letters e
                                          where e.projection_id = d.projection_id and e.stream_id = d.stream_id
                                            and e.state in ('parked', 'replaying') and e.position < d.position))
        order by d.last_failed_at limit 1) f
 where t.replays < $2::bigint
 order by due limit 1
