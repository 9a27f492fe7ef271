-- Returns what tenant ?1 has of events, streams, idempotency keys, aliases, projections and retired names, as JSON. It scans
-- rows that it made itself. Locks nothing. Indexes:
-- that of tenants by name, and the one by tenant of each other table.
with t as materialized (select id from millrace_tenants where name = ?1)
select json_group_array(what) from (
    select 'events' as what from t where exists (select 1 from millrace_events e where e.id > t.id << 40 and e.id < (t.id + 1) << 40)
    union all select 'streams' from t where exists (select 1 from millrace_streams s where s.tenant = t.id)
    union all select 'idempotency keys' from t where exists (select 1 from millrace_append_keys k where k.tenant = t.id)
    union all select 'aliases' from t where exists (select 1 from millrace_aliases a where a.tenant = t.id)
    union all select 'projections' from t where exists (select 1 from millrace_projections p where p.tenant = t.id)
    union all select 'retired projections' from t where exists (select 1 from millrace_retired_projections x where x.tenant = t.id))
