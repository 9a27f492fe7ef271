-- Returns the position of the first event of the tenant number ?1 at or after the time ?2, or null. Index: the primary key, from
-- the tenant's first event on, so it reads all events before that one. Locks nothing.
select (select id & 1099511627775 from millrace_events where id >= ?1 << 40 and id < (?1 + 1) << 40 and created_at >= ?2 order by id limit 1)
