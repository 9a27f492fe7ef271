-- Returns the position of the newest event of tenant ?1, or 0 if it has none. Indexes: that of tenants by name, the primary key of events.
-- Locks nothing.
select coalesce((select max(e.id) from millrace_events e where e.id > t.id << 40 and e.id < (t.id + 1) << 40) - (t.id << 40), 0)
  from millrace_tenants t where t.name = ?1
