-- Reports whether the tenant ?1 has events with ?2 < position <= ?3 in the slots ?4 <= slot < ?5, of the types ?6 (JSON, null: any).
-- Indexes: that of tenants by name, and the primary key of events. Locks nothing.
select exists (select 1 from millrace_tenants t join millrace_events e on e.id > (t.id << 40) + ?2 and e.id <= (t.id << 40) + ?3
               where t.name = ?1 and e.slot >= ?4 and e.slot < ?5
                 and (?6 is null or e.type in (select value from json_each(?6))))
