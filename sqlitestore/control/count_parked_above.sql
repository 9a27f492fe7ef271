-- Counts the parked events of the partitions ?1 (JSON) above the position ?2. Index: that of parked events. Locks nothing.
select count(*) from millrace_dead_letters
where projection in (select value from json_each(?1)) and state in ('parked', 'replaying') and position > ?2
