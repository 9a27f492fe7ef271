-- Counts which of the positions of the events in ?2 are parked for projection ?1. ?2 is as in park_events.sql. Index: the
-- partial index of dead letters by position. Locks nothing.
select count(*) from json_each(?2) e cross join millrace_dead_letters d
where d.projection = ?1 and d.position = e.value ->> 0 and d.state in ('parked', 'replaying')
