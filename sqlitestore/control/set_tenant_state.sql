-- Sets the state ?2 of tenant ?1, and whether it is paused, ?3; null keeps what it is. Index: that by name. Lock: that of the
-- file's writer.
update millrace_tenants set state = coalesce(?2, state), paused = coalesce(?3, paused) where name = ?1
