-- Inserts the rows ?2 of copy_streams.sql into tenant ?1. Index: that of tenants by name. Lock: that of the file's writer.
insert into millrace_streams (tenant, stream_id, version)
select t.id, list.value->>'stream', list.value->>'version' from millrace_tenants t cross join json_each(?2) list where t.name = ?1
