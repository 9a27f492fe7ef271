-- Returns the node that owns the file, or owned it last, with the number of leases that it holds. :living is the living owner of
-- the file, '' for none, and :seen when the last owner was seen alive, null if that is not known. It scans nodes, which has at
-- most one row. Index: leases by owner. Locks nothing.
select n.id, n.name, n.id = :living, n.draining, n.projections, n.tenants,
       (select json_group_array(f.key) from json_each(n.filters) f cross join json_each(f.value) e),
       (select json_group_array(e.value) from json_each(n.filters) f cross join json_each(f.value) e),
       n.started_at, :seen, max(0, coalesce(:now - :seen, 9223372036854775)),
       (select count(*) from millrace_leases l where l.owner = n.id), coalesce(n.summary, '')
from millrace_nodes n
