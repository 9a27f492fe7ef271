-- Returns the oldest open operation. Index: that of open operations, which it scans: few are open. Locks nothing.
select o.id, t.name, o.name, o.kind, o.holds, o.options, o.epoch, coalesce(o.node, ''), o.requested_at, coalesce(o.started_at, 0),
       coalesce(o.ended_at, 0), coalesce(o.code, ''), coalesce(o.error, '')
from millrace_operations o join millrace_tenants t on t.id = o.tenant
where o.ended_at is null
order by o.id limit 1
