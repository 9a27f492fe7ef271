-- Deletes the idempotency keys of the appends of tenant ?1 that have appended events at the positions ?2 (JSON). It scans the keys of
-- the tenant. Lock: that of the file's writer. Indexes: tenants by name, the primary keys.
with erased as materialized (
    select e.stream_id, e.version from millrace_tenants t, json_each(?2) list join millrace_events e on e.id = (t.id << 40) + list.value where t.name = ?1)
delete from millrace_append_keys
where tenant = (select id from millrace_tenants where name = ?1)
and exists (select 1 from erased e where e.stream_id = millrace_append_keys.stream_id
            and e.version between millrace_append_keys.first_version and millrace_append_keys.last_version)
