-- The end of the fence. Moves the checkpoint of a lease from ?4 to ?5 if it is held by owner ?2 under epoch ?3. If it moves,
-- crash_count becomes 0. It does not move past the tenant's last event: a backup was restored into the open file then.
-- ?1 lease. Lock: that of the file's writer. Indexes: the primary keys.
update millrace_leases set checkpoint = ?5, crash_count = case when ?5 > ?4 then 0 else crash_count end
where id = ?1 and owner = ?2 and epoch = ?3 and checkpoint = ?4
and ?5 <= (select t.head from millrace_projections p join millrace_tenants t on t.id = p.tenant where p.id = ?1)
