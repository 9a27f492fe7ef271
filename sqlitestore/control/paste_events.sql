-- Inserts the rows ?2 of copy_events.sql into tenant ?1. It scans a list of the rows: json_each would make the text of a row again for each
-- column. Index: that of tenants by name. Lock: that of the file's writer.
with list as materialized (select value from json_each(?2))
insert into millrace_events (id, slot, stream_id, version, type, body, headers, causation_id, correlation_id, created_at, checksum)
select r.*, millrace_checksum(r.id, r.version, r.at, r.stream, r.type, r.body, r.headers, r.causation, r.correlation)
from (select (t.id << 40) + (list.value->>'position') as id, list.value->>'slot' as slot, list.value->>'stream' as stream,
             list.value->>'version' as version, list.value->>'type' as type, list.value->>'body' as body, list.value->>'headers' as headers,
             list.value->>'causation' as causation, list.value->>'correlation' as correlation, list.value->>'at' as at
      from millrace_tenants t cross join list where t.name = ?1) r
