-- Returns the node that owns the file, or owned it last, with the number of leases that it holds. It scans nodes, which
-- has at most one row. Index: leases by owner. Locks nothing.
select n.id, n.name, n.draining, n.projections, n.tenants, n.filters, n.started_at, (select count(*) from millrace_leases l where l.owner = n.id), coalesce(n.summary, '')
from millrace_nodes n
