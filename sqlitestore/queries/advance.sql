-- The end of the fence. Moves the checkpoint of a lease from ?4 to ?5 if it is held by owner ?2 under epoch ?3. If it moves,
-- crash_count becomes 0. ?1 lease. Lock: that of the file's writer. Index: the primary key.
update millrace_leases set checkpoint = ?5, crash_count = case when ?5 > ?4 then 0 else crash_count end
where id = ?1 and owner = ?2 and epoch = ?3 and checkpoint = ?4
