-- Returns events with an id above ?1 and up to ?2, at most ?3, in order. Index: the primary key. Locks nothing. "+ 0": SQLite
-- plans a statement anew each time a limit that is only a parameter is set.
select id, stream_id, version, type, cast(body as blob), cast(headers as blob), causation_id, correlation_id, created_at, checksum
from millrace_events where id > ?1 and id <= ?2 order by id limit ?3 + 0
