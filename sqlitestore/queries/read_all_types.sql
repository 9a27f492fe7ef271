-- read_all.sql for the types in ?4, a JSON array. Index: the primary key. Locks nothing.
select id, stream_id, version, type, cast(body as blob), cast(headers as blob), causation_id, correlation_id, created_at, checksum
from millrace_events where id > ?1 and id <= ?2 and type in (select value from json_each(?4)) order by id limit ?3 + 0
