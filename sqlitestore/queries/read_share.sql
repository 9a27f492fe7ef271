-- read_all.sql for one partition: the slots from ?4 to ?5, exclusive, and the types in ?6, a JSON array (null: all). Index: the
-- primary key; there is no index on slot, since a partition has events in every page. Locks nothing.
select id, stream_id, version, type, cast(body as blob), cast(headers as blob), causation_id, correlation_id, created_at, checksum
from millrace_events where id > ?1 and id <= ?2 and slot >= ?4 and slot < ?5
and (?6 is null or type in (select value from json_each(?6))) order by id limit ?3 + 0
