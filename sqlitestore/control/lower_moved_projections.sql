-- Lets the ranges that projections of tenant ?1 have passed, and their rebuilds, end at ?2, its last event. It scans the lists of ranges.
-- Indexes: that of tenants by name, that of projections by tenant. Lock: that of the file's writer.
update millrace_projections
set passed = (select json_group_array(json_array(value ->> 0, value ->> 1, min(value ->> 2, ?2))) from json_each(passed)), rebuild_to = min(rebuild_to, ?2)
where tenant = (select id from millrace_tenants where name = ?1)
