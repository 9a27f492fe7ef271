-- Returns the slots of the events of the tenant number ?1 at the positions ?2, a JSON array. Index: the primary key. Locks
-- nothing.
select position, slot from millrace_events where id in (select (?1 << 40) + value from json_each(?2))
