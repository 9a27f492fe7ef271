-- read_stream.sql for the types in ?6, a JSON array. Index: that by stream and version. Locks nothing.
select id, stream_id, version, type, cast(body as blob), cast(headers as blob), causation_id, correlation_id, created_at, checksum
from millrace_events where tenant = ?1 and stream_id = ?2 and version >= ?3 and position > ?4
and type in (select value from json_each(?6)) order by version limit ?5 + 0
