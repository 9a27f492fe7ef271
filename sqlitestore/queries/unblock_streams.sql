-- The first parked event of each of the streams ?2 (JSON) of projection ?1 is blocked by no other event. Indexes: that of
-- parked events by stream, and the primary key. Lock: that of the file's writer.
update millrace_dead_letters set blocked_by_stream = 0
where blocked_by_stream = 1 and id in (
    select (select d.id from millrace_dead_letters d
             where d.projection = ?1 and d.stream_id = j.value and d.state in ('parked', 'replaying') order by d.position limit 1)
    from json_each(?2) j)
