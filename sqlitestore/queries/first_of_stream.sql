-- Returns the first parked event of stream ?2 of projection ?1. Index: that of parked events by stream. Locks nothing.
select id, position, stream_id from millrace_dead_letters
where projection = ?1 and stream_id = ?2 and state in ('parked', 'replaying') order by position limit 1
