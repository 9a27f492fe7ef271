-- Gives the open operations on, or that hold, projections with the names $2 in the tenants $1 the names $3, all three in
-- order. A node that registers the new name takes each of them again. Index: operations_open_idx, which it scans: few
-- operations are open. Locks: the rows until the commit.
with r as (
    select * from unnest($1::text[], $2::text[], $3::text[]) as r (tenant, name, new_name)
)
update {control}.operations o
   set node = null, epoch = o.epoch + 1, name = coalesce((select r.new_name from r where r.tenant = o.tenant and r.name = o.name), o.name),
       holds = array(select coalesce((select r.new_name from r where r.tenant = o.tenant and r.name = h.name), h.name)
                       from unnest(o.holds) with ordinality as h (name, n) order by h.n)
 where o.ended_at is null and exists (select from r where r.tenant = o.tenant and (r.name = o.name or r.name = any(o.holds)))
