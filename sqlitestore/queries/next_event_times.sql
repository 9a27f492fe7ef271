-- Returns when the first event after each position was inserted, null if there is none. ?1 is a JSON array of tenants with
-- positions. Indexes: tenants by name, and the primary key of events. Locks nothing.
select t.name, a.value ->> 1,
       (select e.created_at from millrace_events e
        where e.id > (t.id << 40) + (a.value ->> 1) and e.id < (t.id + 1) << 40 order by e.id limit 1)
from json_each(?1) a cross join millrace_tenants t on t.name = a.value ->> 0
