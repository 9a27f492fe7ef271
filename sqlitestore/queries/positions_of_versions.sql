-- Returns the positions of the events of the stream ?2 of tenant number ?1 with the versions ?3 to ?4. Index: that by
-- stream and version. Locks nothing.
select position from millrace_events where tenant = ?1 and stream_id = ?2 and version between ?3 and ?4 order by version
