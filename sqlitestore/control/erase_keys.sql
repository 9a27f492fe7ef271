-- Deletes the idempotency keys of the appends of tenant ?1 that have appended events at the positions ?2 (JSON). It scans and sorts the keys of
-- the tenant, and reads the events of those of the same streams. Lock: that of the file's writer. Indexes: tenants by name, the primary
-- keys, that of events by stream and version.
with streams as materialized (
    select distinct e.stream_id from millrace_tenants t, json_each(?2) list join millrace_events e on e.id = (t.id << 40) + list.value where t.name = ?1)
delete from millrace_append_keys
where tenant = (select id from millrace_tenants where name = ?1)
and stream_id in (select stream_id from streams)
and exists (select 1 from millrace_events e
            where e.tenant = millrace_append_keys.tenant and e.stream_id = millrace_append_keys.stream_id
            and e.version between millrace_append_keys.first_version and millrace_append_keys.last_version
            and e.id & 1099511627775 in (select value from json_each(?2)))
