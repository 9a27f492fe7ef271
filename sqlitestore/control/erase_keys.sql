-- Deletes the idempotency keys of the appends of tenant ?1 that have appended events at the positions ?2 (JSON). It scans the keys of
-- the tenant, and reads the events of each. Lock: that of the file's writer. Indexes: tenants by name, that of events by stream and
-- version, the primary keys.
delete from millrace_append_keys
where tenant = (select id from millrace_tenants where name = ?1)
and exists (select 1 from millrace_events e
            where e.tenant = millrace_append_keys.tenant and e.stream_id = millrace_append_keys.stream_id
            and e.version between millrace_append_keys.first_version and millrace_append_keys.last_version
            and e.id & 1099511627775 in (select value from json_each(?2)))
