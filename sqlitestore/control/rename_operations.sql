-- Gives the open operations on, or that hold, projection ?2 of tenant ?1 the name ?3. A node that registers the new name takes each of them again. It
-- sorts the names that an operation holds. Indexes: tenants by name, that of open operations. Lock: that of the file's writer.
update millrace_operations
set node = null, epoch = epoch + 1, name = case when name = ?2 then ?3 else name end,
    holds = (select json_group_array(case when h.value = ?2 then ?3 else h.value end order by h.key) from json_each(millrace_operations.holds) h)
where tenant = (select id from millrace_tenants where name = ?1) and ended_at is null
  and (name = ?2 or ?2 in (select value from json_each(millrace_operations.holds)))
