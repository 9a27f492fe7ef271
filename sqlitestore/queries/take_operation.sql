-- Makes node ?1, if it owns the file, carry out the open operation ?2. From then on, nothing that an earlier node does for
-- it can commit. ?3 is the time. Index: the primary keys. Lock: that of the file's writer.
update millrace_operations set node = ?1, epoch = epoch + 1, started_at = coalesce(started_at, ?3)
where id = ?2 and ended_at is null and exists (select 1 from millrace_nodes where id = ?1)
