-- In how many seconds a dead letter is due to be replayed by itself, null where none ever is. Parameters as in schedule_replay.sql.
-- It reads all that failed of the projection and is parked, and is asked only when one may be due.
-- Indexes: the partial ones of dead_letters, parked_streams_pkey. Locks nothing.
select extract(epoch from min(d.last_failed_at + make_interval(secs => least($3::float8 * power($4::float8, least(d.replays, 60)), $5::float8))) - clock_timestamp())::float8
  from {control}.dead_letters d
 where d.projection_id = $1::integer and d.state in ('parked', 'replaying') and not d.behind and d.replays < $2::integer
   and strpos(d.error, $6::text) > 0
   and not exists (select from {control}.parked_streams s
                    where s.projection_id = d.projection_id and s.stream_id = d.stream_id
                      and exists (select from {control}.dead_letters e
                                   where e.projection_id = d.projection_id and e.stream_id = d.stream_id
                                     and e.state in ('parked', 'replaying') and e.position < d.position))
