-- Returns for each number of replays below ?2 the dead letter of projection ?1 that failed first: its id, that number, and
-- when it failed. One of them is due first. The statement skips through the index from one number to the next, and scans
-- these numbers. It leaves out dead letters whose error does not contain ?3, and all of a parked stream except the first,
-- which is replayed in their place after its own interval. Indexes: that of failed events by replays, that of parked events
-- by stream, the primary key of parked streams. Locks nothing.
with recursive tried (replays) as (
    select min(d.replays) from millrace_dead_letters d
    where d.projection = ?1 and d.state in ('parked', 'replaying') and d.blocked_by_stream = 0
    union all
    select (select min(d.replays) from millrace_dead_letters d
             where d.projection = ?1 and d.state in ('parked', 'replaying') and d.blocked_by_stream = 0 and d.replays > n.replays)
    from tried n where n.replays < ?2
)
select f.id, f.replays, f.last_failed_at from tried n cross join millrace_dead_letters f
where n.replays < ?2 and f.id = (
    select d.id from millrace_dead_letters d
    where d.projection = ?1 and d.state in ('parked', 'replaying') and d.blocked_by_stream = 0 and d.replays = n.replays
    and instr(d.error, ?3) > 0
    and not (exists (select 1 from millrace_parked_streams s where s.projection = d.projection and s.stream_id = d.stream_id)
             and exists (select 1 from millrace_dead_letters e
                          where e.projection = d.projection and e.stream_id = d.stream_id and e.state in ('parked', 'replaying')
                          and e.position < d.position))
    order by d.last_failed_at limit 1)
