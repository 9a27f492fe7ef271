-- Gives the open operations on, or that hold, projection $2 of tenant $1 the name $3. A node that registers the new name takes
-- each of them again. Index: operations_open_idx, which it scans: few operations are open. Locks: the rows until the commit.
update {control}.operations o
   set node = null, epoch = o.epoch + 1, name = case when o.name = $2::text then $3::text else o.name end,
       holds = array_replace(o.holds, $2::text, $3::text)
 where o.tenant = $1::text and o.ended_at is null and (o.name = $2::text or $2::text = any(o.holds))
