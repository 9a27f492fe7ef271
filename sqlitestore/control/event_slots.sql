-- Returns the slots of the events of the tenant ?1 at the positions ?2 (JSON). Indexes: tenants by name, and the primary key. Locks
-- nothing.
select position, slot from millrace_events
where id in (select (t.id << 40) + p.value from millrace_tenants t cross join json_each(?2) p where t.name = ?1)
