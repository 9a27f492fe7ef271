-- Returns events of the stream ?2 of tenant number ?1 from version ?3 on and after position ?4, at most ?5. Index: that
-- by stream and version. Locks nothing.
select id, stream_id, version, type, cast(body as blob), cast(headers as blob), causation_id, correlation_id, created_at, checksum
from millrace_events where tenant = ?1 and stream_id = ?2 and version >= ?3 and position > ?4 order by version limit ?5 + 0
