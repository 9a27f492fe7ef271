-- Redacts the events of tenant ?1 at the positions ?2 (JSON): ?3 is their body from now on, and ?4 are their headers. Lock: that of the
-- file's writer. Indexes: tenants by name, the primary key of events.
update millrace_events set body = ?3, headers = ?4, causation_id = null, correlation_id = null,
    checksum = millrace_checksum(id, version, created_at, stream_id, type, ?3, ?4, '', '')
where id in (select (t.id << 40) + list.value from millrace_tenants t, json_each(?2) list where t.name = ?1)
