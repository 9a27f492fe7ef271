-- Has the dead letter replayed next that is due by itself, oldest first, unless something is to be done already: tells whether
-- there is one. $4 replays at most, after $5 seconds, growing by $6 with each up to $7. One that is not the first of a parked
-- stream is not due: in its place that one would be tried, as if it knew no interval. One that is still replaying while no command
-- is open is left over from one that was cancelled. Indexes: leases_pkey, parked_streams_pkey,
-- the partial ones of dead_letters and commands. Commands that ended a day ago are forgotten. Locks: the new row, and the row of leases FOR SHARE until the commit.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint
       and not exists (select from {control}.commands c where c.projection_id = l.id and c.ended_at is null)
       for share
), forgotten as (
    delete from {control}.commands c
     where c.id in (select o.id from {control}.commands o, held
                     where o.projection_id = held.id and o.ended_at < clock_timestamp() - interval '1 day' limit 1000)
), due as (
    select d.id, d.projection_id from {control}.dead_letters d, held
     where d.projection_id = held.id and d.state in ('parked', 'replaying') and not d.behind and d.replays < $4::integer
       and strpos(d.error, $8::text) > 0
       and d.last_failed_at + make_interval(secs => least($5::float8 * power($6::float8, least(d.replays, 60)), $7::float8)) <= clock_timestamp()
       and not exists (select from {control}.parked_streams s
                        where s.projection_id = d.projection_id and s.stream_id = d.stream_id
                          and exists (select from {control}.dead_letters e
                                       where e.projection_id = d.projection_id and e.stream_id = d.stream_id
                                         and e.state in ('parked', 'replaying') and e.position < d.position))
     order by d.position limit 1
)
insert into {control}.commands (projection_id, kind, letters, most) select projection_id, 'replay', array[id], $9::bigint from due
