-- Discards dead letters of projection ?1 from position ?3 to ?4 at ?9, at most ?10, by command ?2, and returns their
-- streams. ?5 to ?8 the filter as in count_dead_letters.sql. Indexes: that of parked events by position, and the primary
-- key. Lock: that of the file's writer.
update millrace_dead_letters set state = 'discarded', open_replays = 0, last_command = ?2, ended_at = ?9
where id in (
    select x.id from millrace_dead_letters x
    where x.projection = ?1 and x.state in ('parked', 'replaying') and x.position >= ?3 and x.position <= ?4
    and (?5 is null or +x.id in (select value from json_each(?5))) and (?6 is null or +x.stream_id = ?6)
    and (?7 is null or x.type = ?7) and (?8 is null or instr(x.error, ?8) > 0)
    order by x.position limit ?10)
returning stream_id
