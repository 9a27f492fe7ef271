-- Returns the dead letters of the partitions ?1 (JSON) with their streams. Index: that by projection and position.
-- Locks nothing.
select id, stream_id from millrace_dead_letters where projection in (select value from json_each(?1))
