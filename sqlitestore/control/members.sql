-- Returns the node that owns the file, or owned it last, with what it registers, and whether it is the living node :living. It
-- scans nodes, which has at most one row. Needs no index, locks nothing.
select n.id, n.name, n.id = :living, n.projections, n.tenants,
       (select json_group_array(f.key) from json_each(n.filters) f cross join json_each(f.value) e),
       (select json_group_array(e.value) from json_each(n.filters) f cross join json_each(f.value) e)
from millrace_nodes n
