-- Returns the first dead letter of projection ?1 from position ?3 to ?4 that command ?2 has not tried. Of a parked stream
-- it returns any event that the filter selects. ?5 to ?8 the filter as in count_dead_letters.sql. The + keeps the planner
-- from the primary key: it would read all of ?5 each time. Indexes: that of parked events by position, the primary key
-- of parked streams. Locks nothing.
select d.id, d.position, d.stream_id from millrace_dead_letters d
left join millrace_parked_streams s on s.projection = d.projection and s.stream_id = d.stream_id
where d.projection = ?1 and d.state in ('parked', 'replaying') and d.position >= ?3 and d.position <= ?4
and (coalesce(s.last_command, d.last_command) <> ?2 or s.stream_id is null and d.open_replays > 0)
and (?5 is null or +d.id in (select value from json_each(?5))) and (?6 is null or +d.stream_id = ?6)
and (?7 is null or d.type = ?7) and (?8 is null or instr(d.error, ?8) > 0)
order by d.position limit 1
